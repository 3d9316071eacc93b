import { existsSync } from 'node:fs';
import { limitError, throwIfAborted, usageError } from '../../src/base/errors.js';
import type { Terminal } from '../../src/cli/command.js';
import { modelOptions } from '../../src/cli/model_options.js';
import { type Options, parseOptions } from '../../src/cli/options.js';
import type { BenchDocument, SuiteDocument } from '../document.js';
import { gpuPageHtml } from '../report/gpu_page.js';
import { GPU_PARTS, type GpuRequest, type GpuResult, gpuTable } from '../suites/gpu.js';
import { peersResult } from '../peers/gpu_part.js';
import { benchModel, chromeIsThere, embeddedMla, oneWeights, passOn, requestFor } from './bench_options.js';
import type { SuiteResult } from './hosted_suites.js';
import { runPeersSuite } from './peers_suite.js';
import { runHosted } from './run_hosted.js';

/** All of it, unless --seconds says otherwise. */
const SECONDS = 600;
/** Of it in Node; the rest is the browser's. */
const NODE_SHARE = 0.7;
/** What is asked of a browser: it waits and reads back otherwise. */
const CHROME_PARTS = ['overheads', 'rates', 'bits'];
const CHROME_SECONDS = 60;

export type GpuDocument = BenchDocument<GpuResult>;

/** Everything that a GPU is asked in ten minutes: in Node, and where Chrome is found what differs there, other runtimes included. */
export async function runGpuSuite(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const began = performance.now();
  const whole = options.integer('seconds', 1) ?? SECONDS;
  const left = (): number => whole - (performance.now() - began) / 1000;
  const parts = partsOf(options);
  const only = options.oneOf('host', ['node', 'chrome']);
  if (only === 'chrome' && options.has('adapter')) {
    throw usageError("--adapter needs --host node: browsers can't choose an adapter by name");
  }
  const model = await benchModel(options, terminal);
  const { options: load } = await requestFor(options, terminal, model, oneWeights(options, 'gpu'));
  const { weights: _weights, ...given } = load;
  const adapterName = options.text('adapter');
  const request: GpuRequest = {
    suite: 'gpu',
    adapter: adapterName === undefined ? {} : { adapterName },
    models: [model, ...(options.has('model') || !existsSync(embeddedMla()) ? [] : [embeddedMla()])],
    load: given,
    parts,
    seconds: only === undefined ? NODE_SHARE * whole : whole,
  };
  const documents: SuiteDocument[] = [];
  const results: GpuResult[] = [];
  let failed = false;
  const run = async (host: 'node' | 'chrome', asked: GpuRequest): Promise<void> => {
    const { document, failed: wrong } = await runHosted(asked, { host, model }, terminal);
    documents.push(document);
    results.push(...(document.results as Omit<GpuResult, 'host'>[]).map((result) => ({ ...result, host })));
    failed ||= wrong;
  };
  if (only !== 'chrome') await run('node', request);
  const inChrome = only === 'chrome' ? parts : (parts ?? CHROME_PARTS).filter((part) => CHROME_PARTS.includes(part));
  const skip = (part: string, title: string, why: string): void =>
    void results.push({ part, title, host: 'chrome', seconds: 0, rows: [], left_out: why });
  /** On the CPU they take minutes, and say nothing of a GPU. */
  const asksPeers = parts?.includes('peers') ?? !documents.some(({ environment }) => environment.note !== undefined);
  if (only !== 'node' && !chromeIsThere()) {
    skip('chrome', 'In Chrome', 'no Chrome or Chromium was found (SPLITKV_CHROME names one)');
  } else if (only !== 'node') {
    const seconds = Math.min(left(), only === 'chrome' ? whole : CHROME_SECONDS);
    try {
      if (inChrome === undefined || inChrome.length > 0) {
        await run('chrome', {
          ...request,
          adapter: { powerPreference: 'high-performance' },
          models: [model],
          parts: inChrome,
          seconds,
        });
      }
    } catch (error) {
      throwIfAborted(terminal.signal, 'bench');
      if (only === 'chrome') throw error;
      skip('chrome', 'In Chrome', (error as Error).message);
    }
    if (asksPeers) results.push(await peers(options, terminal, left()));
    else if (parts === undefined)
      skip('peers', 'Other runtimes', 'the adapter runs on the CPU; --parts peers asks for them');
  }
  const environment = {
    ...documents[0]!.environment,
    ...documents.at(-1)!.environment,
    adapters: [
      ...new Map(
        documents.flatMap(({ environment: { adapters } }) => adapters).map((each) => [each.name, each]),
      ).values(),
    ],
    host: documents[0]!.environment.host,
  };
  const document: GpuDocument = { suite: 'gpu', environment, results };
  return { document, table: gpuTable(results), failed, page: gpuPageHtml(document) };
}

/** --parts, each known. */
function partsOf(options: Options): readonly string[] | undefined {
  const text = options.text('parts');
  if (text === undefined) return undefined;
  const known = [...GPU_PARTS.map(({ name }) => name), 'peers'];
  return text.split(',').map((given) => {
    if (known.includes(given.trim())) return given.trim();
    throw usageError(`--parts ${text}: '${given.trim()}' is none of ${known.join(', ')}`);
  });
}

const PEER_OPTIONS = {
  ...modelOptions,
  'prompt-tokens': { value: 'N', help: '' },
  'max-tokens': { value: 'N', help: '' },
  runs: { value: 'N', help: '' },
};

/** Other runtimes in Chrome; where they aren't installed, or time runs out, it says so. */
async function peers(options: Options, terminal: Terminal, seconds: number): Promise<GpuResult> {
  if (seconds < 20) return peersResult('chrome', () => Promise.reject(limitError('out of time')));
  const late = AbortSignal.timeout(seconds * 1000);
  const asked = parseOptions('bench', PEER_OPTIONS, [
    '--host=chrome',
    '--weights=q4',
    '--prompt-tokens=128',
    '--max-tokens=8',
    '--runs=3',
    ...passOn(options, ['model']),
  ]);
  const timed: Terminal = {
    write: (text) => terminal.write(text),
    note: (line) => terminal.note(line),
    progress: (line) => terminal.progress(line),
    signal: AbortSignal.any([terminal.signal, late]),
  };
  const run = async () => {
    const { document } = await runPeersSuite(asked, timed);
    return { results: document.results ?? [], leftOut: document.left_out };
  };
  return peersResult('chrome', run, () => {
    throwIfAborted(terminal.signal, 'bench');
    return late.aborted ? `out of time (${Math.round(seconds)} s)` : undefined;
  });
}
