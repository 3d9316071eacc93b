import { usageError } from '../../base/errors.js';
import { checkOptions, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { axesFeatures, misfit, modelFeatures } from '../check/capabilities.js';
import { VOCAB_GRANULE } from '../check/check_vocabulary.js';
import { count, range } from '../../base/lists.js';
import { lanesOf } from '../owner.js';
import { partition, spreadEvenly, spreadSegments } from './partition.js';
import type { ModelShape, Plan, RankShare, VocabShare } from '../plan.js';
import { parsePolicy, type Policy } from './policy.js';
import { type StageForm, stageForm } from '../plan/stage_form.js';

/** Degrees are for policies that leave a choice; the rest weighs layers for a pipeline. */
export interface PlanOptions {
  /** Groups of ranks with different weights, in a stage. */
  readonly tensor?: number | undefined;
  /** Ways a stage's cache is split along the sequence. */
  readonly sequence?: number | undefined;
  /** Stages. */
  readonly pipeline?: number | undefined;
  /**
   * What each layer costs, in any unit: milliseconds, bytes. By default an estimate of its weights (and of the head's) from the
   * shape alone.
   */
  readonly layerCosts?: readonly number[] | undefined;
  /** What the first stage pays besides, in the unit of layerCosts; default 0. */
  readonly embeddingCost?: number | undefined;
  /** What the last stage pays besides, in the unit of layerCosts; default 0. */
  readonly headCost?: number | undefined;
  /**
   * Token plans: the share of the sequences that a root keeps, and each of those that follow it, in any unit; alike for every root.
   * Default: 0.5 and 1 each (see `sequenceWeights`). Where ranks split sequences, of each such group; 0 for a root beside them.
   */
  readonly sequenceWeights?: readonly number[] | undefined;
}

const schema: OptionsSchema<PlanOptions> = {
  tensor: wholeNumber(1),
  sequence: wholeNumber(1),
  pipeline: wholeNumber(1),
  layerCosts: true,
  embeddingCost: true,
  headCost: true,
  sequenceWeights: true,
};

/** World sizes that messages propose. */
const MAX_PROPOSED = 16;

/**
 * The plan of a policy for this many ranks.
 *
 * - `single`: one rank.
 * - `tp`: heads, MLP segments, vocabulary rows and experts cut over the ranks. MLA's one latent can't be cut by head, so there
 *   `tp` is `tp+sp`.
 * - `sp`: weights on every rank, the cache split along the sequence over 2, 4 or 8; the head on the first.
 * - `tp+sp`: R ranks as T weight groups of R / T replicas that split their heads' cache along the sequence. For 2 ranks and for
 *   MLA: heads cut T ways, every rank keeps all heads' cache for its share of the lanes.
 * - `pp`: contiguous layers, balanced by cost.
 * - `ep`: experts spread, all else as `sp`.
 * - `token`: one root with all weights, and ranks that keep sequences and no weights; `tp x token`: several roots, heads and MLP
 *   segments cut over them, each followed by as many ranks. `... x sp`: 2, 4 or 8 ranks split the chunks of each sequence, the root
 *   among them; of an odd number it keeps none.
 * - `adp`: attention data parallelism. Attention and vocabulary on every rank, each sequence on one; experts spread, or without
 *   experts MLP segments cut.
 * - `pp x ...`: stages of ranks that share as the second policy says; the most balanced cut that fits, more ranks a stage first.
 *
 * @throws SplitkvError `usage`: an unknown policy or option, or ranks that don't fit, naming what would.
 */
export function makePlan(policy: string, worldSize: number, shape: ModelShape, options: PlanOptions = {}): Plan {
  if (policy.trim().toLowerCase() === 'arranged') {
    throw usageError(
      "plan 'arranged' is made from loads: give --plan the file that `splitkv arrange --out FILE` writes",
    );
  }
  const parsed = parsePolicy(policy);
  checkPlanOptions(options, shape);
  if (!Number.isInteger(worldSize) || worldSize < 1) {
    throw usageError(`plan '${parsed.name}' on ${worldSize} ranks: give a whole number from 1 on`);
  }
  const axes = new Set(parsed.axes);
  if ((options.tensor ?? 1) > 1) axes.add('tp');
  const why = misfit([...axesFeatures(axes), ...modelFeatures(shape)]);
  if (why !== undefined) throw usageError(`plan '${policy}': ${why}`);
  const plan = build(parsed, worldSize, shape, options);
  if (typeof plan !== 'string') return plan;
  const fit = range(1, MAX_PROPOSED + 1).filter((size) => typeof build(parsed, size, shape, options) !== 'string');
  const proposal = fit.length > 0 ? `use ${orList(fit)} rank${fit.at(-1) === 1 ? '' : 's'}` : 'use another policy';
  throw usageError(`plan '${parsed.name}' on ${count(worldSize, 'rank')}: ${plan}; ${proposal}`);
}

/** "1, 2 or 4". */
const orList = (values: readonly number[]): string =>
  values.length < 2 ? values.join() : `${values.slice(0, -1).join(', ')} or ${values.at(-1)}`;

/** The plan, or why there is none. */
function build(policy: Policy, worldSize: number, shape: ModelShape, options: PlanOptions): Plan | string {
  let why: string | undefined;
  for (const stages of stageCounts(policy, worldSize, options.pipeline)) {
    const layers = cutLayers(stages, shape, options);
    const form = layers ? stageForm(policy.inner, worldSize / stages, shape, options) : tooManyStages(stages, shape);
    if (layers && typeof form !== 'string') return assemble(policy.name, layers, worldSize / stages, form, shape);
    why ??= form as string;
  }
  if (why !== undefined) return why;
  if (options.pipeline !== undefined) return `pipeline ${options.pipeline} doesn't fit`;
  return 'they make no 2 stages of 2 ranks or more';
}

const tooManyStages = (stages: number, { numLayers }: ModelShape): string =>
  `${count(numLayers, 'layer')} can't make ${count(stages, 'stage')}`;

/** Numbers of stages to try, the best first. */
function stageCounts({ pipeline, inner }: Policy, worldSize: number, wanted: number | undefined): number[] {
  const fits = (stages: number): boolean => worldSize % stages === 0 && (wanted === undefined || stages === wanted);
  if (!pipeline) return [1].filter(fits);
  if (inner === 'single') return [worldSize].filter(fits);
  const imbalance = (stages: number): number => Math.abs(stages - worldSize / stages);
  const wide = (stages: number): boolean => stages > 1 && stages < worldSize;
  return range(1, worldSize + 1)
    .filter((stages) => fits(stages) && (wanted !== undefined || wide(stages)))
    .toSorted((a, b) => imbalance(a) - imbalance(b) || a - b);
}

function cutLayers(stages: number, shape: ModelShape, options: PlanOptions): [number, number][] | undefined {
  const { numLayers } = shape;
  const { layerCosts, embeddingCost = 0, headCost = 0 } = options.layerCosts ? options : estimate(shape);
  const upTo = [0];
  for (const layer of range(0, numLayers)) upTo.push(upTo[layer]! + (layerCosts?.[layer] ?? 0));
  return partition(
    numLayers,
    stages,
    (first, end) => upTo[end]! - upTo[first]! + (first === 0 ? embeddingCost : 0) + (end === numLayers ? headCost : 0),
  );
}

/** Weights that a token passes, as far as a shape tells: four square attention projections, the MLP, the head. */
function estimate({ numLayers, hiddenSize, mlpSegments, vocabSize }: ModelShape): PlanOptions {
  const columns = mlpSegments.reduce((total, size) => total + size, 0);
  const layer = hiddenSize * (4 * hiddenSize + 3 * columns);
  return { layerCosts: range(0, numLayers).map(() => layer), headCost: hiddenSize * vocabSize };
}

function assemble(
  policy: string,
  layers: readonly [number, number][],
  ranks: number,
  form: StageForm,
  shape: ModelShape,
): Plan {
  const lastRank = (layers.length - 1) * ranks;
  // Roots alone hold vocabulary rows.
  const [holders, step] = form.kind === 'token' ? [form.tensor, ranks / form.tensor] : [ranks, 1];
  const [embedding, head] = [0, lastRank].map((first) =>
    cutRows(shape.vocabSize, 0, holders).map((share) => ({ ...share, rank: first + share.rank * step })),
  );
  const whole = (first: number, holders: number): VocabShare[] =>
    range(first, first + holders).map((rank) => ({ rank, rows: [0, shape.vocabSize] }));
  return {
    version: 1,
    policy,
    worldSize: layers.length * ranks,
    stages: layers.map((span, stage) => ({
      layers: span,
      kind: form.kind,
      shares: shares(stage * ranks, ranks, form, shape),
    })),
    embedding: form.cutVocabulary ? embedding! : whole(0, form.kind === 'token' ? 1 : ranks),
    head: form.cutVocabulary ? head! : whole(lastRank, form.kind === 'adp' ? ranks : 1),
  };
}

/** Roots, each followed by the ranks that keep sequences of it. */
function tokenShares(firstRank: number, ranks: number, form: StageForm, shape: ModelShape): RankShare[] {
  const members = ranks / form.tensor;
  const { sequence: split, weights } = form;
  const roots = shares(0, form.tensor, { ...form, sequence: 1, kind: 'tensor' }, shape);
  // A root that is left over keeps nothing.
  const before = members % split;
  return roots.flatMap((root, group) =>
    range(0, members).map((member): RankShare => {
      const rank = firstRank + group * members + member;
      const alone = member < before;
      const sequences = weights![alone ? member : before + Math.floor((member - before) / split)]!;
      const own = { rank, sequences, lanes: alone ? root.lanes : lanesOf(split, (member - before) % split) };
      if (member === 0) return { ...root, ...own };
      return { ...root, ...own, heads: [], mlp: [], experts: [] };
    }),
  );
}

function shares(firstRank: number, ranks: number, form: StageForm, shape: ModelShape): RankShare[] {
  if (form.kind === 'token') return tokenShares(firstRank, ranks, form, shape);
  const heads = spreadSegments(shape.segmentHeads, form.tensor)!;
  const mlpGroups = form.mlpGroups ?? form.tensor;
  const mlp = spreadSegments(shape.mlpSegments, mlpGroups)!;
  const experts = spreadEvenly(shape.numExperts, ranks);
  const replicas = ranks / form.tensor;
  return range(0, ranks).map((i) => {
    const group = Math.floor(i / replicas);
    const [first, end] = form.spreadExperts ? experts[i]! : [0, shape.numExperts];
    return {
      rank: firstRank + i,
      heads: heads[group]!,
      mlp: mlp[Math.floor((i * mlpGroups) / ranks)]!,
      experts: range(first, end),
      kvHeads: form.ownHeads ? heads[group]! : range(0, shape.kvHeads),
      lanes: lanesOf(form.sequence, i % form.sequence),
      ...(form.kind === 'adp' && { sequences: 1 }),
    };
  });
}

/** Vocabulary rows over ranks, as even as the granule allows; with fewer granules than ranks, the last ranks hold none. */
export function cutRows(vocabSize: number, firstRank: number, ranks: number): VocabShare[] {
  const granules = spreadEvenly(Math.ceil(vocabSize / VOCAB_GRANULE), ranks);
  return granules.flatMap(([first, end], i) =>
    end === first
      ? []
      : [{ rank: firstRank + i, rows: [first * VOCAB_GRANULE, Math.min(end * VOCAB_GRANULE, vocabSize)] as const }],
  );
}

function checkPlanOptions(options: PlanOptions, { numLayers }: ModelShape): void {
  checkOptions('makePlan', options, schema);
  const { layerCosts, embeddingCost = 0, headCost = 0, sequenceWeights } = options;
  const wrong = sequenceWeights?.find((weight) => !(weight >= 0 && weight < Infinity));
  if (wrong !== undefined) throw usageError(`sequenceWeights has ${wrong}; expected numbers from 0 on`);
  if (layerCosts && layerCosts.length !== numLayers) {
    throw usageError(`layerCosts has ${layerCosts.length} entries; this model has ${count(numLayers, 'layer')}`);
  }
  if (!layerCosts && (options.embeddingCost ?? options.headCost) !== undefined) {
    throw usageError('embeddingCost and headCost have the unit of layerCosts: give those too');
  }
  const bad = [...(layerCosts ?? []), embeddingCost, headCost].find((cost) => !(cost >= 0 && cost < Infinity));
  if (bad !== undefined) throw usageError(`a pipeline cost is ${bad}; expected numbers from 0 on`);
}
