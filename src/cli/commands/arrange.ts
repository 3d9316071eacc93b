import { usageError } from '../../base/errors.js';
import {
  arrange,
  type Arrangement,
  type ArrangementProblem,
  copyLimit,
  HEAD_COSTS,
  type HeadCosts,
  type LayerPlacement,
  makespan,
  MODES,
  parseProfile,
  type Placement,
  type Profile,
  promptDeviations,
  promptUtilisation,
  rankLoads,
  toArrangementFile,
  utilisation,
} from '../../arrangement/index.js';
import { alignedTable } from '../../base/aligned_table.js';
import { parsed } from '../../base/json.js';
import { snake } from '../../base/names.js';
import { COPY_SHARING, type CopySharing, LANE_ENTRIES, lanesThatPay } from '../../placement/index.js';
import { type Command, commonOptions, say } from '../command.js';
import { defined, type Options, readGiven, writableGiven, writeGiven } from '../options.js';

export const command: Command = {
  summary:
    'Arranges kv heads over ranks by their load, so that ranks wait little for the busiest one. Modes: static (equally many heads ' +
    'a rank), greedy (longest first), exact (branch and bound), fair-copy (copies of heavy heads ' +
    'in equal shares), wrap (unequal shares).',
  usage: 'arrange --profile FILE --ranks R [options]',
  options: {
    profile: { value: 'FILE', help: 'kept entries of each head: {"model", "kv_budget", "layers": [[mean, ...], ...]}' },
    ranks: { value: 'R', help: 'the number of ranks' },
    pipeline: {
      value: 'P',
      help: 'cut the layers into P runs, each on R/P ranks of its own, and arrange heads within each; default 1',
    },
    mode: {
      value: 'MODE',
      help: `${MODES.join(', ')}; default: exact, and copies by wrap in the layers where whole heads leave ranks idle`,
    },
    copies: {
      value: 'C',
      help: 'copies of heads beyond the first, at most so many a layer; default: what --memory allows, without it R - 1 (exact: 0), of which the default mode takes as few as come close to what all would do',
    },
    memory: {
      value: 'M',
      help: 'heads that fit in the memory of one rank, over all layers, copies included; default: no limit',
    },
    batch: { value: 'B', help: 'requests a batch: shares become multiples of 1/B; default: real numbers' },
    costs: {
      value: 'FILE',
      help: 'arrange for the least latency on unlike adapters, rather than by entries: the document that `splitkv plan MODEL --ranks R --json` prints; ranks are in its order. With --batch',
    },
    sharing: {
      value: 'HOW',
      help: 'for --out: copies of a head share it by sequences, or by lanes (chunks of every sequence); default: sequences where several run side by side; one at a time lanes, where heads keep enough for them to help',
    },
    out: { value: 'FILE', help: 'also write the arrangement there, as a plan' },
    ...commonOptions,
  },
  async run(options, terminal) {
    const file = options.required('profile', 'name a file that `splitkv profile` wrote');
    const limits = readLimits(options);
    const out = await writableGiven(options, 'out');
    const profile = parseProfile(await readGiven('profile', file), file);
    const costs = await readCosts(options);
    const problem: ArrangementProblem = {
      loads: profile.layers,
      deviations: promptDeviations(profile),
      ...limits,
      ...(costs && { costs }),
    };
    const start = performance.now();
    const found = arrange(problem);
    const seconds = (performance.now() - start) / 1000;
    const sharing = options.oneOf('sharing', COPY_SHARING);
    if (out !== undefined) {
      const speeds = costs?.secondsPerEntry.map((seconds) => 1 / seconds);
      const how = { sharing, speeds, loads: profile.layers, pipeline: problem.pipeline };
      const arrangement = toArrangementFile(profile.model, problem.ranks, found, how);
      await writeGiven('out', out, `${JSON.stringify(arrangement)}\n`);
    }
    const ofPrompts = (sharesLanes: boolean): number | undefined =>
      promptUtilisation(profile, found.placement, stageRanks(problem), sharesLanes);
    const prompts = defined({
      utilisation_of_prompts: ofPrompts(false),
      utilisation_of_prompts_shared: found.copies > 0 ? ofPrompts(true) : undefined,
    });
    const text = describeArrangement(profile, problem, found, { seconds, sharing, prompts });
    await say(
      options,
      terminal,
      jsonDocument(found, seconds, prompts),
      text + (out === undefined ? '' : `\nwritten to ${out}\n`),
    );
    return 0;
  },
};

/** Of single prompts, where the profile says how much they vary: with the arrangement's shares, and with lanes shared by each prompt. */
interface PromptFigures {
  readonly utilisation_of_prompts?: number;
  readonly utilisation_of_prompts_shared?: number;
}

/** What `--json` prints; other tools read it. */
function jsonDocument(found: Arrangement, seconds: number, prompts: PromptFigures): object {
  const { mode, makespan, lowerBound, gap, optimal, utilisation, copies, placement } = found;
  const told = { mode, makespan, lower_bound: lowerBound, gap, optimal, utilisation };
  return { ...told, ...prompts, copies, seconds, placement };
}

const stageRanks = ({ ranks, pipeline = 1 }: ArrangementProblem): number => ranks / pipeline;

function readLimits(options: Options): Omit<ArrangementProblem, 'loads'> {
  const ranks = options.integer('ranks', 1, 1024);
  if (ranks === undefined) throw usageError('--ranks is missing: give the number of ranks, e.g. --ranks 4');
  return {
    ranks,
    ...defined({
      mode: options.oneOf('mode', MODES),
      pipeline: options.integer('pipeline', 1),
      copies: options.integer('copies', 0),
      memory: options.integer('memory', 1),
      batch: options.integer('batch', 1),
    }),
  };
}

async function readCosts(options: Options): Promise<HeadCosts | undefined> {
  const file = options.text('costs');
  if (file === undefined) return undefined;
  const document = parsed(await readGiven('costs', file)) as { head_costs?: Record<string, unknown> } | undefined;
  const entries = HEAD_COSTS.map((name) => [name, document?.head_costs?.[snake(name)]] as const);
  const costs = Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  const isRead = entries.every(([name, value]) => {
    const isList = !name.startsWith('bytes');
    return value === undefined || (isList ? Array.isArray(value) : typeof value === 'number');
  });
  if (!isRead || !costs['secondsPerEntry'] || !costs['secondsPerHead'])
    throw usageError(
      `--costs ${file}: this isn't what \`splitkv plan MODEL --ranks R --json\` prints of a model with kv heads`,
    );
  return costs as unknown as HeadCosts;
}

/** An arrangement for people: before and after, how near it is to the best, and who holds what in each layer. */
function describeArrangement(
  { model, kv_budget: budget }: Profile,
  problem: ArrangementProblem,
  found: Arrangement,
  {
    seconds,
    sharing,
    prompts,
  }: { readonly seconds: number; readonly sharing: CopySharing | undefined; readonly prompts: PromptFigures },
): string {
  const { loads, ranks } = problem;
  const { memory: _memory, ...unlimited } = problem;
  const inOrder = arrange({ ...unlimited, mode: 'static' });
  const before = inOrder.placement;
  const told = problem.costs ? (seconds: number) => `${(1000 * seconds).toPrecision(4)} ms` : amount;
  const row = (name: string, of: Arrangement): string[] => {
    if (problem.costs) return [name, told(of.makespan), of.utilisation.toFixed(3)];
    const slowest = makespan(loads, of.placement, ranks);
    return [name, told(slowest), utilisation(loads, ranks, slowest).toFixed(3)];
  };
  const summary = alignedTable(
    [
      ['', 'makespan', 'utilisation'],
      row('static', inOrder),
      ...(found.mode === 'static' ? [] : [row(found.mode, found)]),
      ['lower bound', told(found.lowerBound)],
    ],
    1,
  );
  const proof = found.optimal
    ? 'no makespan is lower within these limits'
    : `at most ${(found.gap * 100).toPrecision(2)}% above the lowest makespan within these limits`;
  return [
    `${model}, KV budget ${budget}: ${loads.length} layers of ${loads[0]?.length} kv heads on ${ranks} ranks`,
    `mode ${found.mode}, ${limitsText(problem)}`,
    '',
    summary,
    `${proof}; copies ${found.copies}; ${seconds.toFixed(2)} s`,
    ...promptsText(prompts),
    ...copiesText(problem, found, sharing),
    '',
    layerTable(problem, before, found.placement),
  ].join('\n');
}

function promptsText({
  utilisation_of_prompts: planned,
  utilisation_of_prompts_shared: shared,
}: PromptFigures): string[] {
  if (planned === undefined) return [];
  const anew =
    shared === undefined ? '' : `, ${shared.toFixed(3)} where copies share the lanes of each long prompt anew`;
  return [`utilisation of single prompts: ${planned.toFixed(3)}${anew}`];
}

/** What runs of the copies, where requests run side by side and where they don't. */
function copiesText(
  { loads, ranks }: ArrangementProblem,
  found: Arrangement,
  sharing: CopySharing | undefined,
): string[] {
  if (found.copies === 0 || sharing !== undefined) return [];
  const { copied, shared, pays } = lanesThatPay(found.placement, ranks, loads);
  const alone = pays
    ? `with these loads it has the chunks of long heads shared out in ${shared} of the ${copied} layers with copies`
    : `with these loads each head is whole on one of its ranks (chunks of it, where it keeps ${LANE_ENTRIES} entries or more)`;
  return [`copies share out requests that run side by side. One at a time: ${alone}, unless --sharing says otherwise`];
}

function limitsText(problem: ArrangementProblem): string {
  const { memory, batch } = problem;
  const copies = copyLimit(problem);
  return [
    copies === Infinity ? 'copies as memory allows' : `at most ${copies} ${copies === 1 ? 'copy' : 'copies'} per layer`,
    memory === undefined ? 'no limit of memory' : `${memory} heads per rank`,
    batch === undefined ? 'real shares' : `shares of 1/${batch}`,
  ].join(', ');
}

/** Of each layer the utilisation before and after, and each rank's heads: "3" a whole head, "3:0.25" a quarter of its requests. */
function layerTable({ loads, ranks }: ArrangementProblem, before: Placement, after: Placement): string {
  const names = Array.from({ length: ranks }, (_, rank) => `rank ${rank}`);
  const used = (load: readonly number[], heads: LayerPlacement = []): string =>
    utilisation([load], ranks, Math.max(...rankLoads(load, heads, ranks))).toFixed(3);
  const rows = loads.map((load, layer) => {
    const heads = after[layer] ?? [];
    const held = names.map((_, own) => {
      const texts = heads.flatMap((copies, head) =>
        copies.flatMap(({ rank, share }) => {
          const part = copies.length === 1 ? '' : `:${Number(share.toFixed(3))}`;
          return rank === own ? [`${head}${part}`] : [];
        }),
      );
      return texts.join(' ') || '-';
    });
    return [`${layer}`, used(load, before[layer]), used(load, heads), ...held];
  });
  return alignedTable([['layer', 'static', 'arranged', ...names], ...rows], 3 + ranks);
}

const amount = (value: number): string => (value >= 100 ? value.toFixed(1) : value.toPrecision(4));
