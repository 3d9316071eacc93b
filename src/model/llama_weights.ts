import type { WeightType } from '../../shaders/linear/pack.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import type { LlamaConfig } from './llama_config.js';
import { llamaWeightMap } from './llama_map.js';
import { allocateMatrix, fillMatrix, type FillOptions, flushEvery, loadVector, type Matrix } from './matrix.js';
import { expectedShapes, type MatrixSpec, type VectorSpec } from './weight_map.js';

export interface LlamaLayerWeights {
  readonly inputNorm: Buffer;
  readonly qkv: Matrix;
  readonly qkvBias: Buffer | undefined;
  readonly qNorm: Buffer | undefined;
  readonly kNorm: Buffer | undefined;
  readonly o: Matrix;
  readonly oBias: Buffer | undefined;
  readonly postNorm: Buffer;
  readonly gateUp: Matrix;
  readonly gateUpBias: Buffer | undefined;
  readonly down: Matrix;
  readonly downBias: Buffer | undefined;
}

export interface LlamaWeights {
  readonly type: WeightType;
  readonly embedding: Matrix;
  readonly layers: readonly LlamaLayerWeights[];
  readonly norm: Buffer;
  /** The embedding itself when they are tied. */
  readonly head: Matrix;
  /** Bytes on the GPU. */
  readonly bytes: number;
  /** Numbers in the checkpoint tensors that were read. */
  readonly parameters: number;
}

export interface WeightProgress {
  readonly loadedBytes: number;
  readonly totalBytes: number;
  readonly tensorsLoaded: number;
  readonly tensorsTotal: number;
  readonly tensor: string;
}

/**
 * Checks every tensor's presence and shape first, then allocates, then streams: a wrong checkpoint fails before bytes are read.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadLlamaWeights(
  device: Device,
  config: LlamaConfig,
  reader: TensorReader,
  type: WeightType,
  options: { readonly signal?: AbortSignal | undefined; readonly onProgress?: (progress: WeightProgress) => void } = {},
): Promise<LlamaWeights> {
  const map = llamaWeightMap(config);
  const shapes = expectedShapes(map);
  let totalBytes = 0;
  let parameters = 0;
  for (const [name, shape] of shapes) {
    reader.expectTensor(name, shape);
    totalBytes += reader.byteLength(name);
    parameters += shape.reduce((product, extent) => product * extent, 1);
  }

  let loadedBytes = 0;
  const seen = new Set<string>();
  const fill: FillOptions = {
    signal: options.signal,
    flush: flushEvery(device),
    onBytes: (bytes, tensor) => {
      loadedBytes += bytes;
      seen.add(tensor);
      options.onProgress?.({ loadedBytes, totalBytes, tensorsLoaded: seen.size, tensorsTotal: shapes.size, tensor });
    },
  };
  const before = device.usage.bytes;
  const matrix = async (spec: MatrixSpec, whole = false): Promise<Matrix> => {
    const allocated = await device.checked(`loading ${spec.name}`, () => allocateMatrix(device, spec, type, { whole }));
    await fillMatrix(device, allocated, spec, reader, fill);
    return allocated;
  };
  const vector = async <S extends VectorSpec | undefined>(spec: S): Promise<S extends VectorSpec ? Buffer : undefined> =>
    (spec && (await loadVector(device, spec, reader, fill))) as S extends VectorSpec ? Buffer : undefined;

  const embedding = await matrix(map.embedding);
  const layers: LlamaLayerWeights[] = [];
  for (const layer of map.layers) {
    layers.push({
      inputNorm: await vector(layer.inputNorm),
      qkv: await matrix(layer.qkv),
      qkvBias: await vector(layer.qkvBias),
      qNorm: await vector(layer.qNorm),
      kNorm: await vector(layer.kNorm),
      o: await matrix(layer.o),
      oBias: await vector(layer.oBias),
      postNorm: await vector(layer.postNorm),
      // Gate and up tiles are read together, so they can't lie in different bindings.
      gateUp: await matrix(layer.gateUp, true),
      gateUpBias: await vector(layer.gateUpBias),
      down: await matrix(layer.down),
      downBias: await vector(layer.downBias),
    });
  }
  const norm = await vector(map.norm);
  const head = map.head ? await matrix(map.head) : embedding;
  return { type, embedding, layers, norm, head, bytes: device.usage.bytes - before, parameters };
}
