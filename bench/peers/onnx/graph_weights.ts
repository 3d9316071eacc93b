import { type MatrixType, packTiles, unpackTiles, type WeightType } from '../../../shaders/linear/pack.js';
import { throwIfAborted } from '../../../src/base/errors.js';
import type { TensorReader } from '../../../src/loader/index.js';
import type { DenseModel } from './dense_model.js';
import type { GqaSpecs } from '../../../src/model/layers/attention/gqa_weights.js';
import type { DenseMlpSpecs } from '../../../src/model/layers/mlp/mlp_weights.js';
import { type LayerMap, modelMap } from '../../../src/model/weights/model_map.js';
import {
  expectedTensors,
  type MatrixSpec,
  matrixType,
  specsIn,
  type VectorSpec,
} from '../../../src/model/weights/weight_map.js';
import type { WeightProgress } from '../../../src/model/weights/weight_loader.js';
import type { OnnxModel } from './graph.js';
import { type GraphTensor, LlamaGraph } from './llama_graph.js';

export interface GraphWeightsOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
}

/**
 * Reads a dense model's checkpoint into a prefill graph. Weights take the values that the ranks' packed ones have, so that prompt and
 * answer are of one model also where that is quantised.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `aborted`
 */
export async function buildLlamaGraph(
  model: DenseModel,
  reader: TensorReader,
  type: WeightType,
  { signal, onProgress }: GraphWeightsOptions,
): Promise<OnnxModel> {
  const map = modelMap(model.config);
  const { embedding } = map;
  // The head stays with the ranks.
  const tensors = expectedTensors(specsIn({ ...map, norm: undefined, head: embedding }));
  for (const [name, { shape }] of tensors) reader.expectTensor(name, shape);
  const totalBytes = [...tensors.keys()].reduce((sum, name) => sum + reader.byteLength(name), 0);
  let loadedBytes = 0;
  let tensorsLoaded = 0;

  const rows = async (tensor: string, count: number): Promise<Float32Array> => {
    throwIfAborted(signal, 'loading');
    const data = await reader.readRows(tensor, 0, count, { signal });
    loadedBytes += reader.byteLength(tensor);
    tensorsLoaded++;
    onProgress?.({ loadedBytes, totalBytes, tensorsLoaded, tensorsTotal: tensors.size, tensor });
    return data;
  };
  const matrix = async (spec: MatrixSpec): Promise<GraphTensor> => {
    const { inFeatures, parts } = spec;
    const all = parts.reduce((sum, part) => sum + part.rows, 0);
    const data = new Float32Array(all * inFeatures);
    let at = 0;
    for (const { tensor, rows: count } of parts) {
      const stored = await rows(tensor!, count);
      data.set(asPacked(matrixType(spec, type), stored, count, inFeatures), at);
      at += stored.length;
    }
    return { data, dims: [all, inFeatures] };
  };
  const vector = async <S extends VectorSpec | undefined>(
    spec: S,
  ): Promise<S extends VectorSpec ? GraphTensor : undefined> => {
    if (!spec) return undefined as never;
    const pieces: Float32Array[] = [];
    for (const { tensor, rows: count } of spec.parts) pieces.push(await rows(tensor!, count));
    const data = Float32Array.from(pieces.flatMap((piece) => [...piece]));
    return { data, dims: [data.length] } as never;
  };
  const layer = async ({ attention, mlp }: LayerMap) => {
    const { qkv, qkvBias, qNorm, kNorm, o, oBias } = attention.weights as GqaSpecs;
    const { gateUp, gateUpBias, down, downBias } = mlp.weights as DenseMlpSpecs;
    return {
      inputNorm: await vector(attention.before!.weight),
      qkv: await matrix(qkv!),
      qkvBias: await vector(qkvBias),
      qNorm: await vector(qNorm),
      kNorm: await vector(kNorm),
      o: await matrix(o[0]!.matrix),
      oBias: await vector(oBias),
      postNorm: await vector(mlp.before!.weight),
      gateUp: await matrix(gateUp!),
      gateUpBias: await vector(gateUpBias),
      down: await matrix(down!),
      downBias: await vector(downBias),
    };
  };

  const graph = new LlamaGraph(model, await matrix(embedding!.matrix));
  for (const of of map.layers) graph.add(await layer(of));
  return graph.finish();
}

/** Rows as they are when they were packed as this type: f32 ones don't change. */
function asPacked(type: MatrixType, rows: Float32Array, count: number, columns: number): Float32Array {
  return type === 'f32' ? rows : unpackTiles(type, packTiles(type, rows, count, columns), count, columns);
}
