/**
 * Room: models: `families` read configs into lists of layers, `layers` compute them on one rank or several, `weights`
 * says what a rank loads, `forward` is the program. This file says how a model can be cut. Read config/model_config.ts
 * next, then families/llama.ts.
 */

import { type Segments, segmentRange, segmentStart } from '../../shaders/linear/segments.js';
import { usageError } from '../base/errors.js';
import { nth, range, sum } from '../base/lists.js';
import { type ModelShape, type Plan, planName, type RankShare, type VocabShare } from '../placement/plan.js';
import {
  attendsBothWays,
  attentionOf,
  cacheLayer,
  cachesLatent,
  expertsOf,
  hasState,
  mixesHeads,
  perLayerWidth,
  type ModelConfig,
  type PagedAttention,
  segmentKvHeads,
} from './config/model_config.js';
import { activationStride, DOWN_SEGMENTS } from './layers/roles.js';

/** The numbers from `first` up to `end`, without it. */
export type Span = readonly [first: number, end: number];

const NOTHING: Span = [0, 0];
export const spanLength = ([first, end]: Span): number => end - first;
export const totalLength = (spans: readonly Span[]): number => sum(spans.map(spanLength));

/** Runs of neighbours of an ascending list: [0, 1, 4] is [0, 2) and [4, 5). */
export function runsOf(list: readonly number[]): Span[] {
  const runs: [first: number, end: number][] = [];
  for (const value of list) {
    const run = runs.at(-1);
    if (run?.[1] === value) run[1]++;
    else runs.push([value, value + 1]);
  }
  return runs;
}

/** What a rank holds of one layer. Spans are of the model's numbers and may be empty. */
export interface LayerSlice {
  /** In the model and in its checkpoint. */
  readonly index: number;
  /** Attention segments (ModelShape), as runs: several where heads are arranged freely, at most one for MLA. */
  readonly heads: readonly Span[];
  /** The query heads of those segments, run by run: none where MLA's groups are empty. */
  readonly queryHeads: readonly Span[];
  /** kv heads whose k and v rows it holds; MLA: [0, 1), the latent's, with any attention segment. */
  readonly kvHeads: readonly Span[];
  /** Segments of the MLP's intermediate size; of the shared experts' too. */
  readonly mlp: Span;
  readonly experts: Span;
}

export interface RankSlice {
  /** Layers of its stages, ascending; those of which it holds the cache alone have empty spans. */
  readonly layers: readonly LayerSlice[];
  readonly embeddingRows?: Span;
  readonly headRows?: Span;
}

/** A contraction of the model that plans split. */
export interface Contraction extends Segments {
  readonly modelInFeatures: number;
}

/** A run of its segments: what `linear` is told, and the elements [start, end) that it covers. */
export interface HeldSegments extends Required<Contraction> {
  readonly start: number;
  readonly end: number;
}

export function holdSegments({ modelInFeatures, total, align }: Contraction, [first, end]: Span): HeldSegments {
  const segments = { total, align, first, count: end - first };
  return { ...segments, modelInFeatures, ...segmentRange(modelInFeatures, segments) };
}

/**
 * The attention segments of o's contraction, which plans hand out: a kv head (or several, `GqaConfig.segments`) with its query heads, or
 * with a latent cache 8 groups of query heads, as even as whole heads allow.
 */
export const attentionSegments = (attention: PagedAttention): Contraction =>
  attention.kind === 'gqa'
    ? { modelInFeatures: attention.heads * attention.headDim, total: attention.segments ?? attention.kvHeads, align: 8 }
    : { modelInFeatures: attention.heads * attention.vHeadDim, total: 8, align: attention.vHeadDim };

function queryHeads(attention: PagedAttention, [first, end]: Span): Span {
  const { modelInFeatures, ...segments } = attentionSegments(attention);
  const width = modelInFeatures / attention.heads;
  const head = (segment: number): number => segmentStart(segment, modelInFeatures, segments) / width;
  return [head(first), head(end)];
}

export const headsOf = (attention: PagedAttention, segments: readonly number[]): number =>
  sum(segments.map((segment) => spanLength(queryHeads(attention, [segment, segment + 1]))));

/**
 * Elements from row to row of the queries of some attention segments: of all heads q (and gates), k and v (where the layer has them), then sinks; of latent attention
 * absorbed q with rotated q_pe, [heads][kvLoraRank + qkRopeHeadDim].
 * @param token of latent attention: the row's own latent and rotary key lie behind them
 */
export function queryRow(attention: PagedAttention, segments: readonly number[], token = false): number {
  const heads = headsOf(attention, segments);
  if (attention.kind === 'mla')
    return activationStride((heads + (token ? 1 : 0)) * (attention.kvLoraRank + attention.qkRopeHeadDim));
  const { headDim, gated = false, sinks = false, sharesKv } = attention;
  const kvHeads = sharesKv === undefined ? segments.length * segmentKvHeads(attention) : 0;
  return activationStride((heads * (gated ? 2 : 1) + 2 * kvHeads) * headDim + (sinks ? heads : 0));
}

export const mlpSegments = (width: number): number[] =>
  range(0, DOWN_SEGMENTS.total).map(
    (segment) => segmentStart(segment + 1, width, DOWN_SEGMENTS) - segmentStart(segment, width, DOWN_SEGMENTS),
  );

/** The intermediate size of the widest MLP that is cut into segments: dense, or shared experts; 0 without either. */
const mlpWidth = ({ layers }: ModelConfig): number =>
  Math.max(...layers.map(({ mlp }) => (mlp.kind === 'experts' ? (mlp.beside?.width ?? mlp.sharedWidth) : mlp.width)));

const numExperts = (config: ModelConfig): number => expertsOf(config)?.numExperts ?? 0;

const isWindowed = ({ layers, maxPositions }: ModelConfig): boolean =>
  layers.some(({ attention }) => attention.kind === 'gqa' && (attention.window ?? maxPositions) < maxPositions);

export function modelShape(config: ModelConfig): ModelShape {
  const sources = range(0, config.layers.length)
    .filter((layer) => cacheLayer(config, layer) !== layer)
    .map((layer) => cacheLayer(config, layer));
  const attention = attentionOf(config);
  const { total } = attentionSegments(attention);
  return {
    numLayers: config.layers.length,
    hiddenSize: config.hiddenSize,
    vocabSize: config.vocabSize,
    segmentHeads: range(0, total).map((segment) => headsOf(attention, [segment])),
    kvHeads: attention.kind === 'gqa' ? total : 1,
    latent: cachesLatent(config),
    ...(isWindowed(config) && { windowed: true }),
    ...(hasState(config) && { recurrent: true }),
    ...(attendsBothWays(config) && { bothWays: true }),
    ...(mixesHeads(config) && { mixedHeads: true }),
    // Inputs for each layer are where tokens are embedded.
    ...(sources.length > 0 && { wholeFrom: Math.min(...sources) }),
    ...(perLayerWidth(config) !== undefined && { wholeFrom: 0 }),
    mlpSegments: mlpSegments(mlpWidth(config)),
    numExperts: numExperts(config),
  };
}

function layerSlice(config: ModelConfig, index: number, heads: readonly Span[], mlp: Span, experts: Span): LayerSlice {
  const { attention } = nth(config.layers, index);
  const kvHeads = segmentKvHeads(attention);
  return {
    index,
    heads,
    queryHeads: heads.map((run) => queryHeads(attention as PagedAttention, run)),
    kvHeads: cachesLatent(config)
      ? heads.slice(0, 1).map(() => [0, 1])
      : heads.map(([first, end]) => [first * kvHeads, end * kvHeads]),
    mlp,
    experts,
  };
}

/** True where a rank holds weights of the layer, not only its cache. */
export const holdsWeights = ({ heads, mlp, experts }: LayerSlice): boolean =>
  totalLength(heads) + spanLength(mlp) + spanLength(experts) > 0;

/** Everything: a model without a plan. */
export function wholeSlice(config: ModelConfig): RankSlice {
  const heads: Span = [0, attentionSegments(attentionOf(config)).total];
  const rows: Span = [0, config.vocabSize];
  return {
    layers: config.layers.map((_, index) =>
      layerSlice(config, index, [heads], [0, DOWN_SEGMENTS.total], [0, numExperts(config)]),
    ),
    embeddingRows: rows,
    headRows: rows,
  };
}

/**
 * What a checked plan gives to a rank.
 * @throws SplitkvError `usage` for a rank outside the plan, or a share that isn't a run of neighbours.
 */
export function rankSlice(plan: Plan, rank: number, config: ModelConfig): RankSlice {
  if (!Number.isInteger(rank) || rank < 0 || rank >= plan.worldSize) {
    throw usageError(`rank ${rank} is not in the ${planName(plan)}, whose ranks are 0 to ${plan.worldSize - 1}`);
  }
  const layers = plan.stages.flatMap(({ layers: [first, end], shares }) => {
    const share = shares.find((candidate) => candidate.rank === rank);
    if (!share) return [];
    const heads = cachesLatent(config)
      ? [run(share, 'heads')].filter((span) => spanLength(span) > 0)
      : runsOf(share.heads);
    const mlp = run(share, 'mlp');
    const experts = run(share, 'experts');
    return range(first, end).map((layer) => layerSlice(config, layer, heads, mlp, experts));
  });
  const embeddingRows = vocabRows(plan.embedding, rank);
  const headRows = vocabRows(plan.head, rank);
  return { layers, ...(embeddingRows && { embeddingRows }), ...(headRows && { headRows }) };
}

function run(share: RankShare, what: 'heads' | 'mlp' | 'experts'): Span {
  const list = share[what];
  const [first] = list;
  if (first === undefined) return NOTHING;
  if (list.some((value, index) => value !== first + index)) {
    throw usageError(`the plan gives rank ${share.rank} ${what} ${list.join(', ')}; expected neighbours, ascending`);
  }
  return [first, first + list.length];
}

const vocabRows = (shares: readonly VocabShare[], rank: number): Span | undefined => {
  const rows = shares.find((share) => share.rank === rank)?.rows;
  return rows && spanLength(rows) > 0 ? rows : undefined;
};
