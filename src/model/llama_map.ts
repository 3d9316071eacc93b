import type { LlamaConfig } from './llama_config.js';
import { DOWN_SEGMENTS } from './roles.js';
import {
  attentionSegments,
  type HeldSegments,
  holdSegments,
  holdsWeights,
  type LayerSlice,
  type RankSlice,
  type Span,
  spanLength,
  totalLength,
  wholeSlice,
} from './shape.js';
import {
  allRows,
  type MatrixSpec,
  someRows,
  type Spec,
  type VectorSpec,
  type VocabSpec,
  vocabMaps,
  wholeVector,
} from './weight_map.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
const GATE_UP_PAD = 32;

/** Undefined: the model has none, or the rank none of it. */
export interface LlamaLayerMap extends Pick<LayerSlice, 'index' | 'queryHeads' | 'kvHeads'> {
  readonly inputNorm: VectorSpec;
  /** q rows of the query heads, then k and v rows of the kv heads. */
  readonly qkv: MatrixSpec | undefined;
  readonly qkvBias: VectorSpec | undefined;
  readonly qNorm: VectorSpec | undefined;
  readonly kNorm: VectorSpec | undefined;
  /** A matrix of o_proj's columns for each run of heads; none without heads. */
  readonly o: readonly OutputSpec[];
  readonly oBias: VectorSpec | undefined;
  readonly postNorm: VectorSpec;
  /** Gate rows, then up rows, each padded to 32. */
  readonly gateUp: MatrixSpec | undefined;
  readonly gateUpBias: VectorSpec | undefined;
  readonly down: MatrixSpec | undefined;
  readonly downSegments: HeldSegments;
  readonly downBias: VectorSpec | undefined;
}

/** o_proj's columns of a run of neighbouring heads. */
export interface OutputSpec {
  readonly matrix: MatrixSpec;
  readonly segments: HeldSegments;
}

export interface LlamaMap {
  readonly embedding: VocabSpec | undefined;
  /** Of which the rank holds weights. */
  readonly layers: readonly LlamaLayerMap[];
  /** Where the head is. */
  readonly norm: VectorSpec | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabSpec | undefined;
}

/** Hugging Face tensor names and shapes of the Llama family (Llama, Qwen2, Qwen3, Mistral); of a rank's slice, or whole. */
export function llamaMap(config: LlamaConfig, slice: RankSlice = wholeSlice(config)): LlamaMap {
  const { hiddenSize, intermediateSize, headDim, numHeads, numKvHeads } = config;
  return {
    ...vocabMaps(config, slice),
    layers: slice.layers.filter(holdsWeights).map(layerMap),
    norm: slice.headRows && wholeVector('norm', 'model.norm.weight', hiddenSize),
  };

  function layerMap({ index, heads, queryHeads, kvHeads, mlp }: LayerSlice): LlamaLayerMap {
    const prefix = `model.layers.${index}.`;
    const attentionPrefix = `${prefix}self_attn.`;
    const mlpPrefix = `${prefix}mlp.`;
    const name = (what: string): string => `layers.${index}.${what}`;
    const { attentionBias, mlpBias, qkNorm } = config;
    const { modelInFeatures, ...attention } = attentionSegments(config);
    const downSegments = holdSegments(intermediateSize, DOWN_SEGMENTS, mlp);
    const headRows = (tensor: string, all: number, runs: readonly Span[]) =>
      runs.map(([first, end]) => ({
        tensor: `${attentionPrefix}${tensor}`,
        all: all * headDim,
        rows: [first * headDim, end * headDim] as const,
      }));
    const qkv = [
      ...headRows('q_proj', numHeads, queryHeads),
      ...headRows('k_proj', numKvHeads, kvHeads),
      ...headRows('v_proj', numKvHeads, kvHeads),
    ];
    const hidden: Span = [downSegments.start, downSegments.end];
    const attends = totalLength(queryHeads) > 0;
    const hasMlp = spanLength(hidden) > 0;
    return {
      index,
      queryHeads,
      kvHeads,
      inputNorm: wholeVector(name('input_norm'), `${prefix}input_layernorm.weight`, hiddenSize),
      qkv: attends
        ? {
            name: name('qkv'),
            inFeatures: hiddenSize,
            parts: qkv.map(({ tensor, all, rows }) => someRows(`${tensor}.weight`, all, rows)),
          }
        : undefined,
      qkvBias:
        attends && attentionBias.q
          ? {
              name: name('qkv_bias'),
              parts: qkv.map(({ tensor, all, rows }) => ({
                tensor: `${tensor}.bias`,
                tensorLength: all,
                first: rows[0],
                length: spanLength(rows),
              })),
            }
          : undefined,
      qNorm: attends && qkNorm ? wholeVector(name('q_norm'), `${attentionPrefix}q_norm.weight`, headDim) : undefined,
      kNorm: attends && qkNorm ? wholeVector(name('k_norm'), `${attentionPrefix}k_norm.weight`, headDim) : undefined,
      o: heads.map((run): OutputSpec => {
        const segments = holdSegments(modelInFeatures, attention, run);
        return {
          segments,
          matrix: {
            name: name(heads.length === 1 ? 'o' : `o.${run[0]}`),
            inFeatures: modelInFeatures,
            segments,
            parts: [allRows(`${attentionPrefix}o_proj.weight`, hiddenSize)],
          },
        };
      }),
      oBias: attentionBias.o ? wholeVector(name('o_bias'), `${attentionPrefix}o_proj.bias`, hiddenSize) : undefined,
      postNorm: wholeVector(name('post_norm'), `${prefix}post_attention_layernorm.weight`, hiddenSize),
      gateUp: hasMlp
        ? {
            name: name('gate_up'),
            inFeatures: hiddenSize,
            parts: ['gate', 'up'].map((half) => ({
              ...someRows(`${mlpPrefix}${half}_proj.weight`, intermediateSize, hidden),
              padTo: GATE_UP_PAD,
            })),
          }
        : undefined,
      gateUpBias:
        hasMlp && mlpBias
          ? {
              name: name('gate_up_bias'),
              parts: ['gate', 'up'].map((half) => ({
                tensor: `${mlpPrefix}${half}_proj.bias`,
                tensorLength: intermediateSize,
                first: hidden[0],
                length: spanLength(hidden),
                padTo: GATE_UP_PAD,
              })),
            }
          : undefined,
      down: hasMlp
        ? {
            name: name('down'),
            inFeatures: intermediateSize,
            segments: downSegments,
            parts: [allRows(`${mlpPrefix}down_proj.weight`, hiddenSize)],
          }
        : undefined,
      downSegments,
      downBias: mlpBias ? wholeVector(name('down_bias'), `${mlpPrefix}down_proj.bias`, hiddenSize) : undefined,
    };
  }
}

/** Everything that the map loads, once. */
export function llamaSpecs({ embedding, layers, norm, head }: LlamaMap): Spec[] {
  return [
    embedding?.matrix,
    ...layers.flatMap((layer) => [
      layer.inputNorm,
      layer.qkv,
      layer.qkvBias,
      layer.qNorm,
      layer.kNorm,
      ...layer.o.map(({ matrix }) => matrix),
      layer.oBias,
      layer.postNorm,
      layer.gateUp,
      layer.gateUpBias,
      layer.down,
      layer.downBias,
    ]),
    norm,
    head === embedding ? undefined : head?.matrix,
  ].filter((spec) => spec !== undefined);
}
