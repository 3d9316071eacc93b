import type { WeightType } from '../../shaders/linear/pack.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import type { LlamaConfig } from './llama_config.js';
import { llamaMap, llamaSpecs } from './llama_map.js';
import type { Matrix } from './matrix.js';
import type { HeldSegments, RankSlice, Span } from './shape.js';
import { type LoadWeightsOptions, type VocabMatrix, WeightLoader } from './weight_loader.js';

/** A rank's slice of a layer. Undefined: the model has none, or the rank none of it. Vectors that aren't cut are whole. */
export interface LlamaLayerWeights {
  /** Of the layer in the model. */
  readonly index: number;
  /** Query heads and kv heads, by the model's numbers, whose rows qkv has; both empty without qkv and o. */
  readonly queryHeads: readonly Span[];
  readonly kvHeads: readonly Span[];
  readonly inputNorm: Buffer;
  readonly qkv: Matrix | undefined;
  readonly qkvBias: Buffer | undefined;
  readonly qNorm: Buffer | undefined;
  readonly kNorm: Buffer | undefined;
  /** o_proj's columns, a matrix for each run of neighbouring heads, with the segments of the contraction that it is. */
  readonly o: readonly { readonly matrix: Matrix; readonly segments: HeldSegments }[];
  /** For whoever adds up all segments. */
  readonly oBias: Buffer | undefined;
  readonly postNorm: Buffer;
  /** Gate and up rows [downSegments.start, downSegments.end) of the intermediate size. */
  readonly gateUp: Matrix | undefined;
  readonly gateUpBias: Buffer | undefined;
  readonly down: Matrix | undefined;
  readonly downSegments: HeldSegments;
  readonly downBias: Buffer | undefined;
}

export interface LlamaWeights {
  readonly type: WeightType;
  readonly embedding: VocabMatrix | undefined;
  /** Layers of which the rank holds weights, ascending. */
  readonly layers: readonly LlamaLayerWeights[];
  /** Where the head is. */
  readonly norm: Buffer | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabMatrix | undefined;
  readonly bytes: number;
  readonly parameters: number;
}

/**
 * Loads a Llama-family checkpoint: a rank's slice, or all of it.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadLlamaWeights(
  device: Device,
  config: LlamaConfig,
  reader: TensorReader,
  type: WeightType,
  options: LoadWeightsOptions & { readonly slice?: RankSlice | undefined } = {},
): Promise<LlamaWeights> {
  const map = llamaMap(config, options.slice);
  const loader = new WeightLoader(device, reader, type, llamaSpecs(map), options);
  const embedding = await loader.vocab(map.embedding);
  const layers: LlamaLayerWeights[] = [];
  for (const layer of map.layers) {
    const o: LlamaLayerWeights['o'][number][] = [];
    for (const { matrix, segments } of layer.o) o.push({ matrix: await loader.matrix(matrix), segments });
    layers.push({
      index: layer.index,
      queryHeads: layer.queryHeads,
      kvHeads: layer.kvHeads,
      inputNorm: await loader.vector(layer.inputNorm),
      qkv: await loader.matrix(layer.qkv),
      qkvBias: await loader.vector(layer.qkvBias),
      qNorm: await loader.vector(layer.qNorm),
      kNorm: await loader.vector(layer.kNorm),
      o,
      oBias: await loader.vector(layer.oBias),
      postNorm: await loader.vector(layer.postNorm),
      // Gate and up tiles are read together, so they can't lie in different bindings.
      gateUp: await loader.matrix(layer.gateUp, { whole: true }),
      gateUpBias: await loader.vector(layer.gateUpBias),
      down: await loader.matrix(layer.down),
      downSegments: layer.downSegments,
      downBias: await loader.vector(layer.downBias),
    });
  }
  const norm = await loader.vector(map.norm);
  const head = map.head === map.embedding ? embedding : await loader.vocab(map.head);
  return { type, embedding, layers, norm, head, bytes: loader.bytes, parameters: loader.parameters };
}
