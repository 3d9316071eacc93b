/**
 * Room: plans in the words of other engines: launch flags, and what has no equivalent. Here a plan is read as degrees;
 * engines.ts writes those for each engine. Flags and their sources: docs/planner.md.
 */

import { didYouMean, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { type OptionsSchema, checkOptions, wholeNumber } from '../../base/options.js';
import { checkPlan } from '../check/check_plan.js';
import { type ModelShape, type Plan, type RankShare, hasGap, isKvOnly, pipelineRuns } from '../plan.js';
import { copiedHeads } from '../sequences/copies.js';
import { type StageView, planTopology } from '../topology.js';
import {
  type AttentionDpWaits,
  type Engine,
  type Launch,
  generalDifferences,
  sglang,
  trtllm,
  vllm,
} from './engines.js';
import { count, nth, sum } from '../../base/lists.js';

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
  const waits = { enable_balance: true, timeout_iters: 50, batching_wait_iters: 10, ...attentionDpConfig };
  const { kvHeads, latent } = shape;
  const heads = sum(shape.segmentHeads);
  const request = { model, contextLength, sequences, waits, degrees: planDegrees(plan), heads, kvHeads, latent };
  const { differences, ...launch } = ENGINES[target](request);
  return { target, ...launch, differences: [...generalDifferences(request), ...differences] };
}

/** An export as lines for a shell, with what differs as comments. Nothing in it is run by being quoted. */
export function exportScript({ devices, command, environment, config, differences }: PlanExport): string {
  const variables = Object.entries(environment).map(([name, value]) => `${name}=${quoted(value)} `);
  const options = command.slice(1).map((word) => `${word.startsWith('--') ? '\\\n  ' : ''}${quoted(word)}`);
  return [
    `# ${count(devices, 'GPU')}`,
    ...(config ? [`cat > ${quoted(config.file)} <<'EOF'`, config.text.trimEnd(), 'EOF'] : []),
    `${variables.join('')}${[...command.slice(0, 1), ...options].join(' ')}`,
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

/** Reads who holds what, not the policy's name: checked plans of any maker have degrees. */
export function planDegrees(plan: Plan): PlanDegrees {
  const { stages } = planTopology(plan);
  const runs = pipelineRuns(plan).map((run) => run.map((at) => nth(stages, at)));
  const degrees = runs.map(runDegrees);
  const [widest] = degrees.toSorted((a, b) => b.ranks - a.ranks) as [StageDegrees];
  const form = ({ copiedHeads: _, ...rest }: StageDegrees): string => JSON.stringify(rest);
  return {
    ...widest,
    copiedHeads: sum(degrees.map((own) => own.copiedHeads)),
    pipeline: runs.length,
    layers: runs.map((views) => sum(views.map(layersOf))),
    mixed: degrees.some((other) => form(other) !== form(widest)),
  };
}

function runDegrees(views: readonly StageView[]): StageDegrees {
  const shares = views.flatMap(({ stage }) => stage.shares);
  const ranksOf = (list: readonly RankShare[]): number => new Set(list.map(({ rank }) => rank)).size;
  const ranks = ranksOf(shares);
  const withWeights = ranksOf(shares.filter((share) => !isKvOnly(share)));
  const arranged = views.some(({ kind, stage }) => kind === 'arranged' && stage.shares.some(isPlaced));
  const [{ groups, split, placeRanks }] = views as [StageView];
  return {
    ranks,
    tensor: arranged ? withWeights / placeRanks.length : groups.length,
    sequence: split,
    data: placeRanks.length,
    kvOnly: ranks - withWeights,
    cutsMlp: views.some((view) => view.cutsMlp),
    spreadsExperts: views.some((view) => view.spreadsExperts),
    arranged,
    copiedHeads: sum(views.map((view) => copiedHeads(view.stage).length * layersOf(view))),
  };
}

const layersOf = ({ stage: { layers } }: StageView): number => layers[1] - layers[0];

/** As no even cut into runs of neighbours has it. */
const isPlaced = ({ heads, copies, mlp }: RankShare): boolean =>
  copies !== undefined || hasGap(heads) || (heads.length === 0) !== (mlp.length === 0);
