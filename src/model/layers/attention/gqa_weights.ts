import type { GqaConfig } from '../../config/model_config.js';
import { type HeldSegments, holdSegments, type Span, spanLength, totalLength } from '../../shape.js';
import type { GqaNames } from '../../config/tensor_names.js';
import {
  allRows,
  type Loaded,
  type MatrixSpec,
  someRows,
  type VectorPart,
  type VectorSpec,
  zeroRows,
} from '../../weights/weight_map.js';
import { type Bytes, type CutBytes, type LayerContext, layerVector, partName, partNorm } from '../layer_weights.js';
import { attentionSegments } from './segments.js';
import { pairsInHalves } from './rope_table.js';

/** Which tensors make a rank's slice of grouped-query attention. Undefined: the model has none, or the rank none of it. */
export interface GqaSpecs {
  readonly kind: 'gqa';
  /** Query heads and kv heads, by the model's numbers, whose rows qkv has; both empty without qkv and o. */
  readonly queryHeads: readonly Span[];
  readonly kvHeads: readonly Span[];
  /**
   * q rows of the query heads, then k and v rows of the kv heads; then, where the output is gated, the gate's, or a row of zeros for each
   * sink, whose bias it is: so sinks travel where queries do.
   */
  readonly qkv: MatrixSpec | undefined;
  readonly qkvBias: VectorSpec | undefined;
  readonly qNorm: VectorSpec | undefined;
  readonly kNorm: VectorSpec | undefined;
  /** Of a norm over all heads at once: of the rank's q, then of its k. */
  readonly wholeNorm: VectorSpec | undefined;
  /** o's columns, a matrix for each run of neighbouring heads, with the segments of the contraction that it is. */
  readonly o: readonly { readonly matrix: MatrixSpec; readonly segments: HeldSegments }[];
  /** For whoever adds up all segments. */
  readonly oBias: VectorSpec | undefined;
}

/** The same on a device. */
export type GqaWeights = Loaded<GqaSpecs>;

/** Rows of some heads in a tensor of `all`, in another order within each head where that is given. */
interface HeadRows {
  readonly tensor: string;
  readonly all: number;
  readonly rows: [number, number];
  readonly order?: readonly number[] | undefined;
}

export function gqaSpecs(context: LayerContext, config: GqaConfig, names: GqaNames): GqaSpecs {
  const { hiddenSize, slice } = context;
  const { heads, queryHeads, kvHeads } = slice;
  const { bias, headDim, rope, qkNorm, sinks = false } = config;
  const { modelInFeatures, ...contraction } = attentionSegments(config);
  const fused = names.qkv === undefined ? undefined : { tensor: names.qkv, all: config.heads + 2 * config.kvHeads };
  const pairs = rope?.interleaved ? pairsInHalves(headDim, 0, rope.dims) : undefined;
  /** Rows of some heads; `before`: heads before them in one matrix of all. */
  const headRows = (tensor: string, all: number, runs: readonly Span[], before: number) =>
    runs.map(([first, end]): HeadRows => ({
      tensor: fused?.tensor ?? tensor,
      all: (fused?.all ?? all) * headDim,
      rows: (fused ? [before + first, before + end] : [first, end]).map((head) => head * headDim) as [number, number],
      order: before < config.heads + config.kvHeads ? pairs : undefined,
    }));
  /** Of q rows with the gate's behind each head's: half 0 or 1 of each head. */
  const halfRows = (half: number) =>
    queryHeads.flatMap(([first, end]) =>
      Array.from({ length: end - first }, (_, at): HeadRows => {
        const row = (2 * (first + at) + half) * headDim;
        return { tensor: names.q, all: 2 * config.heads * headDim, rows: [row, row + headDim] };
      }),
    );
  const qkv = [
    ...(config.gated ? halfRows(0) : headRows(names.q, config.heads, queryHeads, 0)),
    ...headRows(names.k, config.kvHeads, kvHeads, config.heads),
    ...headRows(names.v, config.kvHeads, kvHeads, config.heads + config.kvHeads),
    ...(config.gated ? halfRows(1) : []),
  ];
  const attends = totalLength(queryHeads) > 0;
  const sinkParts = queryHeads.map(([first, end]): VectorPart => ({
    tensor: names.sinks!,
    tensorLength: config.heads,
    first,
    length: end - first,
  }));
  const headNorm = (what: string, name: string | undefined): VectorSpec | undefined =>
    attends && qkNorm === 'head' ? partNorm(context, what, name!, headDim) : undefined;
  const wholeParts = (name: string | undefined, all: number, runs: readonly Span[]): VectorPart[] =>
    runs.map(([first, end]) => ({
      tensor: `${name}.weight`,
      tensorLength: all * headDim,
      first: first * headDim,
      length: (end - first) * headDim,
      ...(pairs && { order: pairs }),
    }));
  return {
    kind: 'gqa',
    queryHeads,
    kvHeads,
    qkv: attends
      ? {
          name: partName(context, 'qkv'),
          inFeatures: hiddenSize,
          parts: [
            ...qkv.map(({ tensor, all, rows, order }) => ({
              ...someRows(`${tensor}.weight`, all, rows),
              ...(order && { order }),
            })),
            ...(sinks ? [zeroRows(totalLength(queryHeads))] : []),
          ],
        }
      : undefined,
    qkvBias:
      attends && (bias.q || sinks)
        ? {
            name: partName(context, 'qkv_bias'),
            parts: [
              ...qkv.map(({ tensor, all, rows, order }): VectorPart => {
                const length = spanLength(rows);
                return bias.q
                  ? { tensor: `${tensor}.bias`, tensorLength: all, first: rows[0], length, ...(order && { order }) }
                  : { tensorLength: length, first: 0, length };
              }),
              ...(sinks ? sinkParts : []),
            ],
          }
        : undefined,
    qNorm: headNorm('q_norm', names.qNorm),
    kNorm: headNorm('k_norm', names.kNorm),
    wholeNorm:
      attends && qkNorm === 'whole'
        ? {
            name: partName(context, 'qk_norm'),
            parts: [
              ...wholeParts(names.qNorm, config.heads, queryHeads),
              ...wholeParts(names.kNorm, config.kvHeads, kvHeads),
            ],
          }
        : undefined,
    o: heads.map((run) => {
      const segments = holdSegments(modelInFeatures, contraction, run);
      return {
        segments,
        matrix: {
          name: partName(context, heads.length === 1 ? 'o' : `o.${run[0]}`),
          inFeatures: modelInFeatures,
          segments,
          parts: [allRows(`${names.o}.weight`, hiddenSize)],
        },
      };
    }),
    oBias: bias.o ? layerVector(context, 'o_bias', `${names.o}.bias`, hiddenSize) : undefined,
  };
}

export const gqaBytes = ({ qkv, qkvBias, qNorm, kNorm, wholeNorm, o, oBias }: GqaSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(qkv, qkvBias, wholeNorm, o),
  shared: bytes(qNorm, kNorm, oBias),
});
