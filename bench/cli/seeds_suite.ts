import { setImmediate } from 'node:timers/promises';
import { lognormalLoads } from '../../src/arrangement/testing/loads.js';
import { LAYERS, meanUtilisation } from '../../src/arrangement/testing/utilisation_table.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { throwIfAborted } from '../../src/base/errors.js';
import { range } from '../../src/base/lists.js';
import type { Terminal } from '../../src/cli/command.js';
import { parseOptions } from '../../src/cli/options.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { openSource } from '../../src/loader/index.js';
import { modelSizes } from '../../src/model/model_sizes.js';
import { modelShape } from '../../src/model/shape.js';
import { storedTypes } from '../../src/model/weights/stored_types.js';
import {
  CHUNK_TOKENS,
  localTokens,
  makePlan,
  planMemory,
  rootShareOf,
  roomByPlace,
  sequenceWeights,
  withSequenceWeights,
} from '../../src/placement/index.js';
import type { BenchAdapter, Measurement, SuiteDocument } from '../document.js';
import type { SuiteRequest } from '../run_suite.js';
import { type AdpStudy, studyAdp } from '../simulate/adp_study.js';
import { mean } from '../simulate/trace.js';
import { type Estimate, medianEstimate } from '../statistics.js';
import type { ArrangedResult } from '../suites/arranged.js';
import type { RanksResult } from '../suites/ranks.js';
import type { ThroughputResult } from '../suites/throughput.js';
import { embeddedMla, embeddedModel } from './bench_options.js';
import { readEnvironment } from './environment.js';
import type { SuiteResult } from './hosted_suites.js';
import { runHosted } from './run_hosted.js';
import { command as simulateAdp, studyOptions } from './simulate/simulate_adp.js';

/**
 * How a figure of ours came about. fitted: constants were chosen so that it is the published one; simulated: the scheduler or the search
 * ran on numbers drawn at random; counted: from a plan, without running it; measured: on this machine's adapters.
 */
type Kind = 'fitted' | 'simulated' | 'counted' | 'measured';

/** A figure of one of the four systems, beside what its document says. */
export interface SeedResult {
  readonly system: string;
  readonly figure: string;
  readonly unit: string;
  readonly kind: Kind;
  /** Undefined where the document gives no number. */
  readonly published: number | undefined;
  /** Of several seeds or runs: the median, and its interval (of seeds: the range). */
  readonly ours: Estimate;
  readonly samples: readonly number[];
}

const ARRANGED = 'load-aware head arrangement (FairKV)';
const HYBRID = 'hybrid tensor and token parallelism';
const BALANCED = 'attention data parallel balance (ADP)';
const SEQUENCES = 'MLA: tensor and chunked sequence parallelism';

/** FairKV's abstract: throughput over standard tensor parallelism (LLaMA-70B, Mistral-24B). */
const FAIRKV_SPEEDUP = 1.66;

interface SeedsRequest {
  readonly host: 'node' | 'chrome';
  readonly adapter: string | undefined;
  readonly ranks: number;
  readonly runs: number;
  /** Of what is drawn at random. */
  readonly seeds: readonly number[];
}

/** Each document's headline figures beside ours. What is measured runs in the host asked for; the rest is computed here. */
export async function runSeedsSuite(request: SeedsRequest, terminal: Terminal): Promise<SuiteResult> {
  const adapters: BenchAdapter[] = [];
  let chrome: string | undefined;
  const measured = async <Result>(asked: SuiteRequest, model: string): Promise<readonly Result[]> => {
    const { document } = await runHosted(asked, { host: request.host, model }, terminal);
    adapters.push(...document.environment.adapters);
    chrome = document.environment.chrome;
    return document.results as readonly Result[];
  };
  const results = await seedFigures(request, measured, terminal);
  const environment = await readEnvironment(request.host, adapters, chrome);
  const document: SuiteDocument = {
    suite: 'seeds',
    environment,
    results,
    measurements: results.flatMap(measurementsOf),
  };
  return { document, table: seedsTable(results) };
}

/** Runs a suite with a model, and gives its results. */
type Measure = <Result>(asked: SuiteRequest, model: string) => Promise<readonly Result[]>;

export const seedFigures = async (
  request: Asked,
  measure: Measure,
  terminal: Pick<Terminal, 'progress' | 'signal'>,
): Promise<SeedResult[]> => [
  ...(await arrangedFigures(request, measure)),
  ...(await hybridFigures(request, measure)),
  ...(await balanceFigures(request, terminal)),
  ...(await sequenceFigures(request, measure)),
];

type Asked = Omit<SeedsRequest, 'host'>;

const one = (value: number): Pick<SeedResult, 'ours' | 'samples'> => ({
  ours: { value, low: value, high: value },
  samples: [value],
});

/** Of seeds: all of them, as an interval of a mean says nothing about how far they are apart. */
const several = (samples: readonly number[]): Pick<SeedResult, 'ours' | 'samples'> => ({
  ours: { value: medianEstimate(samples).value, low: Math.min(...samples), high: Math.max(...samples) },
  samples,
});

const MODES = [
  ['in order', { mode: 'static' }],
  ['by load', { mode: 'exact', copies: 0 }],
  ['copied', { mode: 'fair-copy', copies: 4 }],
] as const;

/** As FairKV calls them. */
const NAMES = { SHA: 'in order', NoDP: 'by load', DP: 'copied' } as const;

async function arrangedFigures({ adapter, ranks, runs, seeds }: Asked, measure: Measure): Promise<SeedResult[]> {
  const drawn = MODES.map(([name, limits]): SeedResult => {
    const profiles = seeds.map((seed) => lognormalLoads(seed, LAYERS, 8));
    const busy = profiles.map((loads) => meanUtilisation(loads, 4, limits));
    return {
      system: ARRANGED,
      figure: `busy, 8 heads on 4: ${name}`,
      unit: 'share',
      kind: 'simulated',
      published: undefined,
      ...several(busy),
    };
  });
  const results = await measure<ArrangedResult>(
    {
      suite: 'arranged',
      model: embeddedModel(),
      wide: true,
      adapter: named(adapter),
      ranks: [ranks],
      batches: [2],
      budget: 0.2,
      promptTokens: 512,
      maxTokens: 8,
      runs,
    },
    embeddedModel(),
  );
  const wide = results.filter(({ model }) => model === results.at(-1)?.model);
  return [
    ...drawn,
    ...wide.map(({ arrangement, utilisation }): SeedResult => ({
      system: ARRANGED,
      figure: `busy, ${ranks} ranks, KV read: ${NAMES[arrangement]}`,
      unit: 'share',
      kind: 'counted',
      published: undefined,
      ...one(utilisation),
    })),
    ...wide
      .filter(({ arrangement }) => arrangement === 'DP')
      .map(({ speedup, step_ms: median, samples }): SeedResult => ({
        system: ARRANGED,
        figure: `speed over heads in order, ${ranks} ranks`,
        unit: 'ratio',
        kind: 'measured',
        published: FAIRKV_SPEEDUP,
        ours: speedup,
        samples: samples.map((sample) => (speedup.value * median) / sample),
      })),
  ];
}

/** Tokens of a sequence, where sequences are counted. */
const CONTEXT = 1024;

async function hybridFigures({ adapter, ranks, runs }: Asked, measure: Measure): Promise<SeedResult[]> {
  const { config, reader } = await openModelFiles(await openSource(embeddedModel()));
  const shape = modelShape(config);
  const sizes = modelSizes(config, storedTypes((await reader()).index, config), 'f32');
  const plan = makePlan('token', ranks, shape);
  const memoryOf = (slots: number, of: typeof plan) => planMemory(of, sizes, { contextLength: CONTEXT, slots });
  const single = makePlan('single', 1, shape);
  // As much memory for each rank as weights and 16 sequences take on one.
  const room = memoryOf(16, single)[0]!.totalBytes;
  // Sequences are dealt out by the room that ranks have, as `load` does with a memory budget.
  const dealt = (slots: number): typeof plan => {
    const rooms = memoryOf(slots, plan).map(({ weightBytes }) => ({ bytes: room - weightBytes, speed: undefined }));
    const { kvBytes } = memoryOf(1, single)[0]!;
    const places = roomByPlace(plan, rooms);
    return withSequenceWeights(plan, sequenceWeights(places, slots * kvBytes, rootShareOf(plan), kvBytes));
  };
  const most = range(1, 16 * (2 * ranks + 1)).findLast((slots) =>
    memoryOf(slots, dealt(slots)).every(({ totalBytes }) => totalBytes <= room),
  );
  const [root, ...others] = memoryOf(ranks, plan);
  const results = await measure<ThroughputResult>(
    {
      suite: 'throughput',
      model: embeddedModel(),
      adapter: named(adapter),
      plans: ['token'],
      ranks,
      microBatches: [1],
      batches: [16],
      contexts: [CONTEXT],
      maxTokens: 8,
      runs,
    },
    embeddedModel(),
  );
  const rest = { system: HYBRID, published: undefined } as const;
  return [
    {
      ...rest,
      figure: 'weights of other ranks over the root',
      unit: 'share',
      kind: 'counted',
      published: 0,
      ...one(mean(others.map(({ weightBytes }) => weightBytes)) / root!.weightBytes),
    },
    {
      ...rest,
      figure: `sequences, ${ranks} ranks over 1`,
      unit: 'ratio',
      kind: 'counted',
      ...one((most ?? 0) / 16),
    },
    ...results
      .filter(({ plan: name }) => name === 'token')
      .map(({ speedup, tokens_per_second: median, samples }): SeedResult => ({
        ...rest,
        figure: `speed, ${ranks} ranks over 1`,
        unit: 'ratio',
        kind: 'measured',
        ours: speedup,
        samples: samples.map((sample) => (speedup.value * sample) / median),
      })),
  ];
}

async function balanceFigures(
  { seeds }: Asked,
  terminal: Pick<Terminal, 'progress' | 'signal'>,
): Promise<SeedResult[]> {
  const studies: AdpStudy[] = [];
  for (const seed of seeds) {
    const options = await studyOptions(parseOptions('simulate', simulateAdp.options, ['--seed', String(seed)]));
    studies.push(
      await studyAdp(options, async (name) => {
        terminal.progress(`simulating ${name}, seed ${seed}`);
        await setImmediate();
        throwIfAborted(terminal.signal, 'the simulation');
      }),
    );
  }
  const [first] = studies;
  return first!.rows.flatMap(({ name }, at): SeedResult[] => {
    const published = first!.published.find((row) => row.name === name);
    const of = (key: 'tps' | 'balance' | 'weighed_balance' | 'speedup') =>
      several(studies.map(({ rows }) => rows[at]![key]));
    const row = (
      figure: string,
      unit: string,
      kind: Kind,
      value: number | undefined,
      ours: ReturnType<typeof several>,
    ) => ({
      system: BALANCED,
      figure: `${figure}: ${name}`,
      unit,
      kind,
      published: value,
      ...ours,
    });
    return [
      row('tokens a second', 'tokens/s', name === 'baseline' ? 'fitted' : 'simulated', published?.tps, of('tps')),
      row('balance, mean', 'share', 'simulated', published?.balance, of('balance')),
      row('balance, weighed', 'share', 'simulated', undefined, of('weighed_balance')),
      ...(name === 'baseline' ? [] : [row('speedup', 'ratio', 'simulated', published?.speedup, of('speedup'))]),
    ];
  });
}

/** Tokens that a sequence is cut at. */
const LENGTH = 6000;

async function sequenceFigures({ adapter, ranks, runs }: Asked, measure: Measure): Promise<SeedResult[]> {
  const most = (held: readonly number[]): number => Math.max(...held) / mean(held);
  const chunked = range(0, ranks).map((index) => localTokens(LENGTH, ranks, index, 0));
  // The prompt is cut evenly, and the last rank takes all that is generated: what the document sets out from.
  const grown = range(0, ranks).map((index) => LENGTH / 2 / ranks + (index === ranks - 1 ? LENGTH / 2 : 0));
  const results = await measure<RanksResult>(
    {
      suite: 'ranks',
      model: embeddedMla(),
      adapter: named(adapter),
      plans: ['tp+sp'],
      ranks: [ranks],
      promptTokens: 512,
      batch: 4,
      maxTokens: 8,
      runs,
    },
    embeddedMla(),
  );
  const rest = { system: SEQUENCES, published: undefined } as const;
  return [
    {
      ...rest,
      figure: 'fullest cache over the mean, in order',
      unit: 'ratio',
      kind: 'counted',
      ...one(most(grown)),
    },
    {
      ...rest,
      figure: `fullest cache over the mean, chunks of ${CHUNK_TOKENS}`,
      unit: 'ratio',
      kind: 'counted',
      published: 1,
      ...one(most(chunked)),
    },
    ...results
      .filter(({ plan }) => plan === 'tp+sp')
      .map(({ task, speedup, seconds, samples }): SeedResult => ({
        ...rest,
        figure: `speed of ${task}, ${ranks} ranks over 1`,
        unit: 'ratio',
        kind: 'measured',
        ours: speedup,
        samples: samples.map((sample) => (speedup.value * seconds) / sample),
      })),
  ];
}

const named = (adapter: string | undefined) => (adapter === undefined ? {} : { adapterName: adapter });

/** Bars: the published figure, where there is one, and ours. */
function measurementsOf({ system, figure, unit, kind, published, samples }: SeedResult): Measurement[] {
  const bar = (source: string, of: readonly number[]): Measurement => ({
    metric: system,
    unit,
    better: 'higher',
    setting: { figure: `${figure} (${source})` },
    samples: of,
  });
  return [...(published === undefined ? [] : [bar('published', [published])]), bar(kind, samples)];
}

export function seedsTable(results: readonly SeedResult[]): string {
  const text = (value: number, unit: string): string =>
    unit === 'share' ? `${(100 * value).toFixed(1)}%` : unit === 'tokens/s' ? value.toFixed(0) : value.toFixed(2);
  const blocks = [...new Set(results.map(({ system }) => system))].map((system) => {
    const rows = results
      .filter((result) => result.system === system)
      .map(({ figure, unit, kind, published, ours }) => [
        figure,
        kind,
        published === undefined ? '-' : text(published, unit),
        text(ours.value, unit),
        ours.low === ours.high ? '' : `${text(ours.low, unit)} to ${text(ours.high, unit)}`,
      ]);
    return `${system}\n${alignedTable([['', '', 'published', 'ours', ''], ...rows], 2)}`;
  });
  return `${blocks.join('\n')}
fitted: constants were chosen so that it comes out as published; simulated: the scheduler or the search on numbers
drawn at random, with the range over seeds; counted: from a plan, without running it; measured: on this machine's
adapters, with a 95% interval. busy: the mean rank's load over the fullest one's. sequences: of ${CONTEXT} tokens, in as much
memory a rank; speed: of 16 of them. fullest cache: of ${LENGTH} tokens, half of them generated. The published balance of ADP's baseline may be no balance (docs/adp.md).
`;
}
