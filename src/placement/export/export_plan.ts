/**
 * Room: plans in the words of other engines: launch flags, and what has no equivalent. degrees.ts reads a plan as
 * degrees; each engine has a file. Flags and their sources: docs/planner.md.
 */

import { didYouMean, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { type OptionsSchema, checkOptions, wholeNumber } from '../../base/options.js';
import { checkPlan } from '../check/check_plan.js';
import { type ModelShape, type Plan, type RankShare, type Stage, hasGap, isKvOnly, pipelineRuns } from '../plan.js';
import {
  type AttentionDpWaits,
  type Engine,
  type Launch,
  generalDifferences,
  sglang,
  trtllm,
  vllm,
} from './engines.js';
import { sameList } from '../../base/lists.js';

/** Engines that plans are exported for: vLLM, TensorRT-LLM, SGLang. */
export const EXPORT_TARGETS = ['vllm', 'trtllm', 'sglang'] as const;
export type ExportTarget = (typeof EXPORT_TARGETS)[number];

const ENGINES: Readonly<Record<ExportTarget, Engine>> = { vllm, trtllm, sglang };

export interface ExportOptions {
  /** The model as the engine is to find it: a name of the Hub, or a folder. Default 'MODEL'. */
  readonly model?: string;
  /** Tokens of the longest sequence; default: the engine's. */
  readonly contextLength?: number;
  /** Sequences that run side by side, over all ranks; default: the engine's. */
  readonly sequences?: number;
  /**
   * Of plans with attention data parallelism: how prompts wait for company. Defaults: true, 50 and 10, as TensorRT-LLM's own but for the
   * first.
   */
  readonly attentionDpConfig?: Partial<AttentionDpWaits>;
}

/** How another engine is launched to share a model as a plan does. */
export interface PlanExport extends Launch {
  readonly target: ExportTarget;
}

const schema: OptionsSchema<ExportOptions> = {
  model: (value) =>
    typeof value === 'string' && /^[^-]/.test(value) ? undefined : `${show(value)}: expected a name, or a folder`,
  contextLength: wholeNumber(1),
  sequences: wholeNumber(1),
  attentionDpConfig: true,
};
const waitsSchema: OptionsSchema<AttentionDpWaits> = {
  enable_balance: (value) => (typeof value === 'boolean' ? undefined : `${show(value)}: expected true or false`),
  timeout_iters: wholeNumber(0),
  batching_wait_iters: wholeNumber(0),
};

/**
 * The launch flags of another engine that correspond to a plan. It reads who holds what, so plans of any policy, and plans that were
 * written by hand, are exported. Where the engine has no equivalent, the nearest is taken, and `differences` says so.
 *
 * @throws SplitkvError `usage` for a target that isn't known, a plan that doesn't fit the shape, and options that make no sense
 */
export function exportPlan(
  plan: Plan,
  shape: ModelShape,
  target: ExportTarget,
  options: ExportOptions = {},
): PlanExport {
  if (!EXPORT_TARGETS.includes(target)) {
    throw usageError(
      `export ${show(target)}: use ${EXPORT_TARGETS.join(', ')}.${didYouMean(String(target), EXPORT_TARGETS)}`,
    );
  }
  checkOptions('exportPlan', options, schema);
  const { model = 'MODEL', contextLength, sequences, attentionDpConfig = {} } = options;
  checkOptions('attentionDpConfig', attentionDpConfig, waitsSchema);
  checkPlan(plan, shape);
  const degrees = planDegrees(plan, shape);
  const waits = { enable_balance: true, timeout_iters: 50, batching_wait_iters: 10, ...attentionDpConfig };
  const heads = shape.segmentHeads.reduce((sum, count) => sum + count, 0);
  const request = {
    model,
    contextLength,
    sequences,
    waits,
    degrees,
    heads,
    kvHeads: shape.kvHeads,
    latent: shape.latent,
  };
  const { differences, ...launch } = ENGINES[target](request);
  return { target, ...launch, differences: [...generalDifferences(request), ...differences] };
}

/** An export as lines for a shell, with what differs as comments. Nothing in it is run by being quoted. */
export function exportScript({ devices, command, environment, config, differences }: PlanExport): string {
  const variables = Object.entries(environment).map(([name, value]) => `${name}=${quoted(value)} `);
  const options = command.slice(1).map((word) => `${word.startsWith('--') ? '\\\n  ' : ''}${quoted(word)}`);
  return [
    `# ${devices} GPU${devices === 1 ? '' : 's'}`,
    ...(config ? [`cat > ${quoted(config.file)} <<'EOF'`, config.text.trimEnd(), 'EOF'] : []),
    `${variables.join('')}${[command[0]!, ...options].join(' ')}`,
    ...(differences.length === 0 ? [] : ['# What differs from the plan:']),
    ...differences.map((line) => `# - ${line}`),
    '',
  ].join('\n');
}

/** A word of a POSIX shell. */
const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;

/** A plan in the degrees that other engines take, as far as it has such. Of a pipeline's stage, where stages are alike. */
export interface PlanDegrees {
  /** Stages of layers on ranks of their own. */
  readonly pipeline: number;
  /** Layers of each of them. */
  readonly layers: readonly number[];
  /** Ranks of a stage. */
  readonly ranks: number;
  /** Ways that heads are cut over the ranks that hold weights (in each of the data-parallel groups). */
  readonly tensor: number;
  /** Ways that a sequence's cache is split along the sequence. */
  readonly sequence: number;
  /** Groups of ranks that run the rows of their own sequences. */
  readonly data: number;
  /** Ranks that keep caches and hold no weights. */
  readonly kvOnly: number;
  /** MLP segments are cut over ranks. */
  readonly cutsMlp: boolean;
  /** Of a model with experts: not every rank with weights holds all of them. */
  readonly spreadsExperts: boolean;
  /** Heads that lie elsewhere than in even runs of neighbours. */
  readonly arranged: boolean;
  /** Heads that several ranks hold, added up over layers. */
  readonly copiedHeads: number;
  /** Stages of a pipeline share their layers in different ways: this is the one with most ranks. */
  readonly mixed: boolean;
}

type StageDegrees = Omit<PlanDegrees, 'pipeline' | 'layers' | 'mixed'>;

/** Reads who holds what, not the policy's name: plans of any maker have degrees. */
export function planDegrees(plan: Plan, shape: ModelShape): PlanDegrees {
  const runs = pipelineRuns(plan).map((run) => run.map((at) => plan.stages[at]!));
  const degrees = runs.map((stages) => runDegrees(stages, shape));
  const [widest] = degrees.toSorted((a, b) => b.ranks - a.ranks) as [StageDegrees];
  const form = ({ copiedHeads: _, ...rest }: StageDegrees): string => JSON.stringify(rest);
  return {
    ...widest,
    copiedHeads: degrees.reduce((total, { copiedHeads }) => total + copiedHeads, 0),
    pipeline: runs.length,
    layers: runs.map((stages) => stages.at(-1)!.layers[1] - stages[0]!.layers[0]),
    mixed: degrees.some((other) => form(other) !== form(widest)),
  };
}

function runDegrees(stages: readonly Stage[], { numExperts }: ModelShape): StageDegrees {
  const shares = stages.flatMap((stage) => stage.shares);
  const ranks = new Set(shares.map(({ rank }) => rank));
  const withWeights = new Set(shares.filter((share) => !isKvOnly(share)).map(({ rank }) => rank));
  const holders = shares.filter((share) => !isKvOnly(share));
  const arranged = stages.some(({ kind, shares: own }) => kind === 'arranged' && own.some(isPlaced));
  const cuts = stages.map(stageCut);
  const [cut] = cuts as [StageCut];
  return {
    ranks: ranks.size,
    ...cut,
    ...(arranged && { tensor: withWeights.size / cut.data }),
    kvOnly: ranks.size - withWeights.size,
    cutsMlp: holders.some(({ mlp }) => !sameList(mlp, holders[0]!.mlp)),
    spreadsExperts: numExperts > 0 && holders.some(({ experts }) => experts.length < numExperts),
    arranged,
    copiedHeads: stages.reduce((total, { layers: [first, end], shares: own }) => {
      const copied = new Set(own.flatMap(({ copies = [] }) => copies.map(({ head }) => head)));
      return total + copied.size * (end - first);
    }, 0),
  };
}

/** As no even cut into runs of neighbours has it. */
const isPlaced = ({ heads, copies, mlp }: RankShare): boolean =>
  copies !== undefined || hasGap(heads) || (heads.length === 0) !== (mlp.length === 0);

interface StageCut {
  readonly tensor: number;
  readonly sequence: number;
  readonly data: number;
}

function stageCut({ kind, shares }: Stage): StageCut {
  const roots = shares.filter(({ heads }) => heads.length > 0);
  const alike = roots.filter(({ heads }) => sameList(heads, roots[0]!.heads));
  const keepers = shares.filter(({ lanes, sequences }) => lanes.length > 0 && sequences !== 0);
  return {
    tensor: distinct(roots.map(({ heads }) => heads)),
    sequence: Math.max(1, distinct(keepers.map(({ lanes }) => lanes))),
    data: kind === 'adp' ? alike.length / distinct(alike.map(({ lanes }) => lanes)) : 1,
  };
}

const distinct = (lists: readonly (readonly number[])[]): number => new Set(lists.map((list) => list.join())).size;
