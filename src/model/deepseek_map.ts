import type { DeepseekConfig } from './config.js';
import { isMoeLayer } from './config.js';
import { DOWN_SEGMENTS } from './roles.js';
import {
  attentionSegments,
  type HeldSegments,
  holdSegments,
  holdsWeights,
  type LayerSlice,
  type RankSlice,
  sharedWidth,
  type Span,
  spanLength,
  wholeSlice,
} from './shape.js';
import {
  allRows,
  type MatrixPart,
  type MatrixSpec,
  someRows,
  type Spec,
  type VectorSpec,
  type VocabSpec,
  vocabMaps,
  wholeVector,
} from './weight_map.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
const PAD = 32;

/** A SwiGLU, dense or of the shared experts. The matrices are undefined where the rank holds none of its columns. */
export interface DenseMlpMap {
  readonly gateUp: MatrixSpec | undefined;
  readonly down: MatrixSpec | undefined;
  readonly downSegments: HeldSegments;
}

export interface MoeMap {
  readonly router: MatrixSpec;
  readonly correctionBias: VectorSpec | undefined;
  /** Experts of the matrices below, by the model's numbers. */
  readonly experts: Span;
  /** Expert by expert: gate rows, then up rows, each padded to 32. */
  readonly expertsGateUp: MatrixSpec | undefined;
  readonly expertsDown: MatrixSpec | undefined;
  readonly shared: DenseMlpMap | undefined;
}

/** Undefined: the model has none, or the rank none of it. */
export interface DeepseekLayerMap extends Pick<LayerSlice, 'index'> {
  readonly queryHeads: Span;
  readonly inputNorm: VectorSpec;
  /** q_proj's rows of the heads or all of q_a_proj (padded to 32 rows), then all of kv_a_proj_with_mqa: latent, rotary key. */
  readonly project: MatrixSpec | undefined;
  /** The row of `project` where the latent starts. */
  readonly latentOffset: number;
  readonly projectBias: VectorSpec | undefined;
  readonly qNorm: VectorSpec | undefined;
  readonly qUp: MatrixSpec | undefined;
  readonly latentNorm: VectorSpec | undefined;
  /** kv_b_proj as stored: heads * (nope + v) rows of kvLoraRank; absorbed into a matrix a head when it is loaded. */
  readonly kvUp: MatrixSpec | undefined;
  readonly o: MatrixSpec | undefined;
  readonly oSegments: HeldSegments;
  readonly oBias: VectorSpec | undefined;
  readonly postNorm: VectorSpec;
  readonly mlp: DenseMlpMap | MoeMap;
}

export interface DeepseekMap {
  readonly embedding: VocabSpec | undefined;
  /** Of which the rank holds weights. */
  readonly layers: readonly DeepseekLayerMap[];
  /** Where the head is. */
  readonly norm: VectorSpec | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabSpec | undefined;
}

export const isMoe = <D, M extends object>(mlp: D | M): mlp is M =>
  typeof mlp === 'object' && mlp !== null && 'router' in mlp;

/** Hugging Face tensor names and shapes of DeepSeek-V2, V3 and MiniCPM3; of a rank's slice, or whole. */
export function deepseekMap(config: DeepseekConfig, slice: RankSlice = wholeSlice(config)): DeepseekMap {
  return {
    ...vocabMaps(config, slice),
    layers: slice.layers.filter(holdsWeights).map((layer) => layerMap(config, layer)),
    norm: slice.headRows && wholeVector('norm', 'model.norm.weight', config.hiddenSize),
  };
}

/** Heads of a latent cache are never arranged freely. */
const onlyRun = (runs: readonly Span[]): Span => runs[0] ?? [0, 0];

function layerMap(config: DeepseekConfig, slice: LayerSlice): DeepseekLayerMap {
  const { hiddenSize, moe } = config;
  const name = `layers.${slice.index}.`;
  const prefix = `model.layers.${slice.index}.`;
  return {
    index: slice.index,
    queryHeads: onlyRun(slice.queryHeads),
    inputNorm: wholeVector(`${name}input_norm`, `${prefix}input_layernorm.weight`, hiddenSize),
    ...attentionMap(config, slice, name, `${prefix}self_attn.`),
    postNorm: wholeVector(`${name}post_norm`, `${prefix}post_attention_layernorm.weight`, hiddenSize),
    mlp:
      moe && isMoeLayer(config, slice.index)
        ? moeMap(config, slice, name, `${prefix}mlp.`)
        : denseMap(config, slice, name, `${prefix}mlp.`, config.intermediateSize),
  };
}

function attentionMap(config: DeepseekConfig, slice: LayerSlice, name: string, prefix: string) {
  const heads = onlyRun(slice.heads);
  const queryHeads = onlyRun(slice.queryHeads);
  const { hiddenSize, numHeads, qLoraRank, kvLoraRank, qkNopeHeadDim, qkRopeHeadDim, vHeadDim, attentionBias } = config;
  const { modelInFeatures, ...contraction } = attentionSegments(config);
  const oSegments = holdSegments(modelInFeatures, contraction, heads);
  const count = spanLength(queryHeads);
  const headRows = (width: number): Span => [queryHeads[0] * width, queryHeads[1] * width];
  const qOrder = rotaryOrder(config, qkNopeHeadDim);
  const kvOrder = rotaryOrder(config, kvLoraRank);
  const qWidth = qkNopeHeadDim + qkRopeHeadDim;
  const kvWidth = qkNopeHeadDim + vHeadDim;
  const q = (tensor: string): MatrixPart => ({
    ...someRows(`${prefix}${tensor}`, numHeads * qWidth, headRows(qWidth)),
    ...(qOrder && { order: qOrder }),
  });
  // Segments without heads still need the latent: the rank writes it into its cache.
  const qParts: MatrixPart[] =
    count === 0
      ? []
      : [{ ...(qLoraRank === null ? q('q_proj.weight') : allRows(`${prefix}q_a_proj.weight`, qLoraRank)), padTo: PAD }];
  const kvA = { rows: kvLoraRank + qkRopeHeadDim, ...(kvOrder && { order: kvOrder }) };
  const latent = spanLength(heads) > 0;
  const latentOffset = qParts.reduce((sum, { rows }) => sum + Math.ceil(rows / PAD) * PAD, 0);
  return {
    project: latent
      ? {
          name: `${name}project`,
          inFeatures: hiddenSize,
          parts: [...qParts, { ...allRows(`${prefix}kv_a_proj_with_mqa.weight`, kvA.rows), ...kvA }],
        }
      : undefined,
    latentOffset,
    projectBias:
      latent && attentionBias
        ? {
            name: `${name}project_bias`,
            parts: [
              ...qParts.map(({ rows }) => ({
                // q_proj has no bias, but its rows keep their place.
                ...(qLoraRank !== null && { tensor: `${prefix}q_a_proj.bias` }),
                tensorLength: rows,
                first: 0,
                length: rows,
                padTo: PAD,
              })),
              {
                tensor: `${prefix}kv_a_proj_with_mqa.bias`,
                tensorLength: kvA.rows,
                first: 0,
                length: kvA.rows,
                ...(kvOrder && { order: kvOrder }),
              },
            ],
          }
        : undefined,
    qNorm:
      count > 0 && qLoraRank !== null
        ? wholeVector(`${name}q_norm`, `${prefix}q_a_layernorm.weight`, qLoraRank)
        : undefined,
    qUp:
      count > 0 && qLoraRank !== null
        ? { name: `${name}q_up`, inFeatures: qLoraRank, parts: [q('q_b_proj.weight')] }
        : undefined,
    latentNorm: latent ? wholeVector(`${name}latent_norm`, `${prefix}kv_a_layernorm.weight`, kvLoraRank) : undefined,
    kvUp:
      count > 0
        ? {
            name: `${name}kv_up`,
            inFeatures: kvLoraRank,
            parts: [someRows(`${prefix}kv_b_proj.weight`, numHeads * kvWidth, headRows(kvWidth))],
            // Blocks along the rows of a transposed half would round other groups of weights than the checkpoint's rows have.
            precision: 'unquantised' as const,
            packedAs: [
              { name: `${name}kv_up absorbed`, rows: count * kvLoraRank, columns: qkNopeHeadDim },
              { name: `${name}kv_up values`, rows: count * Math.ceil(vHeadDim / PAD) * PAD, columns: kvLoraRank },
            ],
          }
        : undefined,
    o:
      count > 0
        ? {
            name: `${name}o`,
            inFeatures: modelInFeatures,
            segments: oSegments,
            parts: [allRows(`${prefix}o_proj.weight`, hiddenSize)],
          }
        : undefined,
    oSegments,
    oBias: attentionBias ? wholeVector(`${name}o_bias`, `${prefix}o_proj.bias`, hiddenSize) : undefined,
  };
}

function denseMap(
  { hiddenSize }: DeepseekConfig,
  { mlp }: LayerSlice,
  name: string,
  prefix: string,
  width: number,
): DenseMlpMap {
  const downSegments = holdSegments(width, DOWN_SEGMENTS, mlp);
  const hidden: Span = [downSegments.start, downSegments.end];
  if (spanLength(hidden) === 0) return { gateUp: undefined, down: undefined, downSegments };
  return {
    gateUp: {
      name: `${name}gate_up`,
      inFeatures: hiddenSize,
      parts: ['gate', 'up'].map((half) => ({
        ...someRows(`${prefix}${half}_proj.weight`, width, hidden),
        padTo: PAD,
      })),
    },
    down: {
      name: `${name}down`,
      inFeatures: width,
      segments: downSegments,
      parts: [allRows(`${prefix}down_proj.weight`, hiddenSize)],
    },
    downSegments,
  };
}

function moeMap(config: DeepseekConfig, slice: LayerSlice, name: string, prefix: string): MoeMap {
  const { hiddenSize } = config;
  const { numExperts, intermediateSize, numShared, correctionBias } = config.moe!;
  const [first, end] = slice.experts;
  const each = Array.from({ length: end - first }, (_, expert) => `${prefix}experts.${first + expert}.`);
  return {
    // Whole on every rank, in f32: a router's rounding changes which experts run.
    router: {
      name: `${name}router`,
      inFeatures: hiddenSize,
      parts: [allRows(`${prefix}gate.weight`, numExperts)],
      precision: 'f32',
    },
    correctionBias: correctionBias
      ? wholeVector(`${name}correction_bias`, `${prefix}gate.e_score_correction_bias`, numExperts)
      : undefined,
    experts: slice.experts,
    expertsGateUp:
      each.length > 0
        ? {
            name: `${name}experts_gate_up`,
            inFeatures: hiddenSize,
            parts: each.flatMap((expert) =>
              ['gate', 'up'].map((half) => ({
                ...allRows(`${expert}${half}_proj.weight`, intermediateSize),
                padTo: PAD,
              })),
            ),
          }
        : undefined,
    expertsDown:
      each.length > 0
        ? {
            name: `${name}experts_down`,
            inFeatures: intermediateSize,
            parts: each.map((expert) => ({ ...allRows(`${expert}down_proj.weight`, hiddenSize), padTo: PAD })),
          }
        : undefined,
    shared:
      numShared > 0
        ? denseMap(config, slice, `${name}shared_`, `${prefix}shared_experts.`, sharedWidth(config))
        : undefined,
  };
}

/**
 * Interleaved rotary rows put in halves: of every group of `plain` rows followed by qkRopeHeadDim rotary ones, the even rotary
 * rows first, then the odd ones, as transformers does to activations. Undefined where the checkpoint has halves already.
 */
function rotaryOrder({ ropeInterleaved, qkRopeHeadDim }: DeepseekConfig, plain: number): number[] | undefined {
  if (!ropeInterleaved) return undefined;
  const half = qkRopeHeadDim / 2;
  return Array.from({ length: plain + qkRopeHeadDim }, (_, row) => {
    if (row < plain) return row;
    const rotary = row - plain;
    return plain + (rotary < half ? 2 * rotary : 2 * (rotary - half) + 1);
  });
}

/** Everything that the map loads, once. */
export function deepseekSpecs({ embedding, layers, norm, head }: DeepseekMap): Spec[] {
  const denseSpecs = (mlp: DenseMlpMap | undefined) => [mlp?.gateUp, mlp?.down];
  return [
    embedding?.matrix,
    ...layers.flatMap(({ mlp, ...layer }) => [
      layer.inputNorm,
      layer.project,
      layer.projectBias,
      layer.qNorm,
      layer.qUp,
      layer.latentNorm,
      layer.kvUp,
      layer.o,
      layer.oBias,
      layer.postNorm,
      ...(isMoe<DenseMlpMap, MoeMap>(mlp)
        ? [mlp.router, mlp.correctionBias, mlp.expertsGateUp, mlp.expertsDown, ...denseSpecs(mlp.shared)]
        : denseSpecs(mlp)),
    ]),
    norm,
    head === embedding ? undefined : head?.matrix,
  ].filter((spec) => spec !== undefined);
}
