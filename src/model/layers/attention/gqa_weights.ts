import { known } from '../../../base/errors.js';
import { range } from '../../../base/lists.js';
import type { GqaConfig } from '../../config/model_config.js';
import { attentionSegments, type HeldSegments, holdSegments, type Span } from '../../shape.js';
import type { GqaNames } from '../../config/tensor_names.js';
import {
  allRows,
  type Loaded,
  type MatrixSpec,
  type Part,
  someRows,
  type VectorSpec,
  zeroRows,
} from '../../weights/weight_map.js';
import type { Bytes, CutBytes, LayerContext } from '../layer_weights.js';
import { axesInHalves, pairsInHalves } from './rope_table.js';

/** Which tensors make a rank's slice of grouped-query attention. Undefined: the model has none, or the rank none of it. */
export interface GqaSpecs {
  readonly kind: 'gqa';
  /** Query heads and kv heads, by the model's numbers, whose rows qkv has; both empty without qkv and o. */
  readonly queryHeads: readonly Span[];
  readonly kvHeads: readonly Span[];
  /**
   * q rows of the query heads, then k and v rows of the kv heads, unless the layer shares another's; then, where the output is gated, the gate's, or a row of zeros for each
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

export type GqaWeights = Loaded<GqaSpecs>;

export function gqaSpecs(context: LayerContext, config: GqaConfig, names: GqaNames): GqaSpecs {
  const { hiddenSize, slice } = context;
  const { heads: runs, queryHeads, kvHeads } = slice;
  const { bias, heads, headDim, rope, qkNorm, sinks = false, gated = false, keysAreValues = false } = config;
  const shares = config.sharesKv !== undefined;
  const attends = queryHeads.length > 0;
  const pairs = rope?.interleaved && pairsInHalves(headDim, 0, rope.dims);
  const order = rope?.interleaved === 'by axis' ? axesInHalves(headDim) : pairs || undefined;
  /** Rows of some heads of a tensor of `all`. */
  const rowsOf = (tensor: string, all: number, [first, end]: Span, more?: Partial<Part>): Part =>
    someRows(tensor, all * headDim, [first * headDim, end * headDim], more);
  /** The same of q, k or v, which has `before` heads before it in one matrix of all. */
  const headRows = (tensor: string, all: number, own: readonly Span[], before: number): Part[] =>
    own.map(([first, end]) => {
      const more = { order: before < heads + config.kvHeads ? order : undefined };
      return names.qkv === undefined
        ? rowsOf(tensor, all, [first, end], more)
        : rowsOf(names.qkv, heads + 2 * config.kvHeads, [before + first, before + end], more);
    });
  /** Of q rows with the gate's behind each head's: half 0 or 1 of each head. */
  const halfRows = (half: number): Part[] =>
    queryHeads.flatMap(([first, end]) =>
      range(2 * first, 2 * end).flatMap((at) => (at % 2 === half ? [rowsOf(names.q, 2 * heads, [at, at + 1])] : [])),
    );
  const qkv = [
    ...(gated ? halfRows(0) : headRows(names.q, heads, queryHeads, 0)),
    ...(shares
      ? []
      : [
          ...headRows(names.k, config.kvHeads, kvHeads, heads),
          ...headRows(keysAreValues ? names.k : names.v, config.kvHeads, kvHeads, heads + config.kvHeads),
        ]),
    ...(gated ? halfRows(1) : []),
  ];
  const zeros = (parts: readonly Part[]): Part[] => parts.map(({ rows }) => zeroRows(rows));
  const sinkParts = sinks ? queryHeads.map((own) => someRows(known(names.sinks, 'name of sinks'), heads, own)) : [];
  const qkvBias = bias.q ? context.bias('qkv_bias', qkv).parts : zeros(qkv);
  const headNorm = (what: string, name: string | undefined): VectorSpec | undefined =>
    attends && qkNorm === 'head'
      ? context.vector(what, [allRows(`${name}.weight`, headDim, { order })], { plus: context.norm.offset })
      : undefined;
  const normRows = (name: string | undefined, all: number, own: readonly Span[]): Part[] =>
    own.map((span) => rowsOf(`${name}.weight`, all, span, { order }));
  const wholeRows = [...normRows(names.qNorm, heads, queryHeads), ...normRows(names.kNorm, config.kvHeads, kvHeads)];
  return {
    kind: 'gqa',
    queryHeads,
    kvHeads,
    qkv: attends ? context.matrix('qkv', hiddenSize, [...qkv, ...zeros(sinkParts)]) : undefined,
    qkvBias: attends && (bias.q || sinks) ? context.vector('qkv_bias', [...qkvBias, ...sinkParts]) : undefined,
    qNorm: headNorm('q_norm', names.qNorm),
    kNorm: shares ? undefined : headNorm('k_norm', names.kNorm),
    wholeNorm: attends && qkNorm === 'whole' ? context.vector('qk_norm', wholeRows) : undefined,
    o: runs.map((run) => {
      const segments = holdSegments(attentionSegments(config), run);
      return { segments, matrix: context.output(runs.length === 1 ? 'o' : `o.${run[0]}`, names.o, segments) };
    }),
    oBias: bias.o ? context.whole('o_bias', `${names.o}.bias`, hiddenSize) : undefined,
  };
}

export const gqaBytes = ({ qkv, qkvBias, qNorm, kNorm, wholeNorm, o, oBias }: GqaSpecs, bytes: Bytes): CutBytes => ({
  cut: bytes(qkv, qkvBias, wholeNorm, o),
  shared: bytes(qNorm, kNorm, oBias),
});
