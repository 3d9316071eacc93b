import { usageError } from '../../base/errors.js';
import { checkOptions, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { type Feature, misfit, modelFeatures } from '../check/capabilities.js';
import { count, nth, range, sum } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import { type StageCut, partition } from './stage_cut.js';
import { cutsColumns, type ModelShape, type Plan } from '../plan.js';
import type { Degrees } from './degrees.js';
import { parsePolicy, type Policy } from './policy.js';

/** Degrees are for policies that leave a choice, as far as they are given; the rest weighs layers and sequences. */
export interface PlanOptions extends Degrees {
  /** Ways a stage's cache is split along the sequence, or of a latent that weight groups share, ranks of each that do. */
  readonly sequence?: number | undefined;
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
  data: wholeNumber(1),
  tensor: wholeNumber(1),
  token: wholeNumber(1),
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
 * - `tp`: heads, MLP segments, vocabulary rows and experts cut over the ranks. More ranks than kv heads: those with the same heads split
 *   the cache along the sequence, and all else is cut over all. MLA's one latent can't be cut by head, so there `tp` is `tp+sp`.
 * - `sp`: weights on every rank, the cache split along the sequence over them; the head on the first.
 * - `tp+sp`: R ranks as T weight groups of R / T replicas that split their heads' cache along the sequence. Where no number of groups
 *   divides the ranks, and for MLA: heads cut T ways, every rank keeps all heads' cache for its share of the lanes.
 * - `pp`: contiguous layers, balanced by cost.
 * - `ep`: experts spread, all else as `sp`.
 * - `token`: one root with all weights, and ranks that keep sequences and no weights; `tp x token`: several roots, heads and MLP
 *   segments cut over them, each followed by as many ranks. `... x sp`: 8, 4 or 2 ranks (or `sequence`) split the chunks of each
 *   sequence, the root among them; where one is left over, that is the root and it keeps none.
 * - `adp`: attention data parallelism. Attention and vocabulary on every rank, each sequence on one; experts spread, or without
 *   experts MLP segments cut. `adp x tp`, `adp x sp`, `adp x tp+sp`: groups of ranks that share a sequence so, and each group has its
 *   own; experts spread over all ranks, all else whole in each group.
 * - `pp x ...`: stages of ranks that share as the second policy says; the most balanced cut that fits, more ranks a stage first, and one whose
 *   ranks share a sequence evenly before others.
 *
 * @throws SplitkvError `usage`: an unknown policy or option, or ranks that don't fit, naming what would.
 */
export function makePlan(policy: string, worldSize: number, shape: ModelShape, options: PlanOptions = {}): Plan {
  const parsed = parsePolicy(policy);
  checkPlanOptions(options, shape);
  if (!Number.isInteger(worldSize) || worldSize < 1) {
    throw usageError(`plan '${parsed.name}' on ${worldSize} ranks: give a whole number from 1 on`);
  }
  const { features } = parsed;
  if ((options.token ?? 1) > 1 && !features.includes('token')) {
    throw usageError(
      `plan '${parsed.name}' with token ${options.token}: it has no KV-only ranks; use one with 'token'`,
    );
  }
  const cut: readonly Feature[] = (options.tensor ?? 1) > 1 ? ['cutHeads'] : [];
  const why = misfit([...features, ...cut, ...modelFeatures(shape)]);
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
  let uneven: Plan | undefined;
  for (const stages of stageCounts(policy, worldSize, options.pipeline)) {
    const layers = cutLayers(stages, shape, options);
    const cut = layers ? policy.stage(worldSize / stages, shape, options) : tooManyStages(stages, shape);
    if (layers && typeof cut !== 'string') {
      const plan = assemble(policy.name, layers, cut);
      if (isEven(cut)) return plan;
      uneven ??= plan;
    } else why ??= cut as string;
  }
  if (uneven) return uneven;
  if (why !== undefined) return why;
  if (options.pipeline !== undefined) return `pipeline ${options.pipeline} doesn't fit`;
  return 'they make no 2 stages of 2 ranks or more';
}

/** Ranks have as many merge lanes each, and what else they hold is cut alike. */
const isEven = ({ shares }: StageCut): boolean =>
  !cutsColumns(shares) &&
  new Set(shares.map(({ lanes }) => lanes.length)).size === 1 &&
  shares.every(({ lanes }) => nth(lanes, lanes.length - 1) < MERGE_LANES);

const tooManyStages = (stages: number, { numLayers, wholeFrom }: ModelShape): string =>
  `${count(numLayers, 'layer')}${wholeFrom === undefined ? '' : `, of which those from ${wholeFrom} on share keys and values or inputs,`} can't make ${count(stages, 'stage')}`;

/** Numbers of stages to try, the best first. */
export function stageCounts(
  { name, pipeline }: Pick<Policy, 'name' | 'pipeline'>,
  worldSize: number,
  wanted: number | undefined,
): number[] {
  const fits = (stages: number): boolean => worldSize % stages === 0 && (wanted === undefined || stages === wanted);
  if (!pipeline) return [1].filter(fits);
  if (name === 'pp') return [worldSize].filter(fits);
  const imbalance = (stages: number): number => Math.abs(stages - worldSize / stages);
  const wide = (stages: number): boolean => stages > 1 && stages < worldSize;
  return range(1, worldSize + 1)
    .filter((stages) => fits(stages) && (wanted !== undefined || wide(stages)))
    .toSorted((a, b) => imbalance(a) - imbalance(b) || a - b);
}

function cutLayers(stages: number, shape: ModelShape, options: PlanOptions): [number, number][] | undefined {
  const { numLayers, wholeFrom = numLayers - 1 } = shape;
  // The last piece is all layers that no stage may part.
  const pieces = wholeFrom + 1;
  const layerOf = (piece: number): number => (piece === pieces ? numLayers : piece);
  const { layerCosts, embeddingCost = 0, headCost = 0 } = options.layerCosts ? options : estimate(shape);
  let before = 0;
  const upTo = [0, ...range(0, numLayers).map((layer) => (before += layerCosts?.[layer] ?? 0))];
  const cuts = partition(
    pieces,
    stages,
    (first, end) =>
      nth(upTo, layerOf(end)) - nth(upTo, first) + (first === 0 ? embeddingCost : 0) + (end === pieces ? headCost : 0),
  );
  return cuts?.map(([first, end]) => [first, layerOf(end)]);
}

/** Weights that a token passes, as far as a shape tells: four square attention projections, the MLP, the head. */
function estimate({ numLayers, hiddenSize, mlpSegments, vocabSize }: ModelShape): PlanOptions {
  const layer = hiddenSize * (4 * hiddenSize + 3 * sum(mlpSegments));
  return { layerCosts: range(0, numLayers).map(() => layer), headCost: hiddenSize * vocabSize };
}

function assemble(policy: string, layers: readonly [number, number][], cut: StageCut): Plan {
  const ranks = cut.shares.length;
  const from = <T extends { readonly rank: number }>(stage: number, list: readonly T[]): T[] =>
    list.map((item) => ({ ...item, rank: item.rank + stage * ranks }));
  return {
    version: 1,
    policy,
    worldSize: layers.length * ranks,
    stages: layers.map((span, stage) => ({ layers: span, kind: cut.kind, shares: from(stage, cut.shares) })),
    embedding: from(0, cut.embedding),
    head: from(layers.length - 1, cut.head),
  };
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
