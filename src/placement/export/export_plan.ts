/**
 * Room: plans in the words of other engines: launch flags, and what has no equivalent. degrees.ts reads a plan as
 * degrees; each engine has a file. Flags and their sources: docs/planner.md.
 */

import { didYouMean, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { checkOptions, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { checkPlan } from '../check/check_plan.js';
import type { ModelShape, Plan } from '../plan.js';
import { planDegrees } from './degrees.js';
import { type AttentionDpWaits, type Engine, generalDifferences, type Launch } from './engine.js';
import { sglang } from './sglang.js';
import { trtllm } from './trtllm.js';
import { vllm } from './vllm.js';

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
