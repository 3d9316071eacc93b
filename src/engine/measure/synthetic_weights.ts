import { blockElements, isKept, type MatrixType } from '../../../shaders/linear/pack.js';
import { keptPlanes, randomBlocks } from '../../../shaders/linear/kept/kept.js';
import { Random } from '../../base/random.js';
import { type BlockType, type RowPiece, type TensorEntry, type TensorIndex, TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import type { RankSlice } from '../../model/shape.js';
import { perLayerTable } from '../../model/layers/per_layer_weights.js';
import { weightSpecs } from '../../model/weights/model_map.js';
import { soundSpecs } from '../../model/sound/sound_specs.js';
import { embedderSpecs } from '../../model/vision/embedder_specs.js';
import { encoderSpecs, placesTable } from '../../model/vision/encoder_specs.js';
import { expectedTensors, specsIn } from '../../model/weights/weight_map.js';
import { typeOfTensor, type WeightTypes } from '../../model/weights/weight_types.js';

const TABLE = 2 ** 14;
/** Odd and not near a power of two, so that rows are different pieces of the table. */
const STRIDE = 4999;
/** Of a file's blocks, of which rows are made. */
const BLOCKS = 61;

/**
 * A checkpoint of random weights that takes no room and is read at the speed of memory: enough to run a model's program at its real
 * speed, with routers that spread rows over experts, before anything of the model itself is read. After `loadKept`.
 */
export function syntheticWeights(config: ModelConfig, slice: RankSlice, types: WeightTypes = 'f32'): TensorReader {
  const table = new Random(1).normals(TABLE);
  return new TensorReader(SOURCE, indexOf(config, slice, table, types));
}

/** A checkpoint that has nothing to read: matrices stay zero, and only their buffers are made. */
export const blankWeights = (config: ModelConfig, slice: RankSlice): TensorReader =>
  new BlankReader(SOURCE, indexOf(config, slice, new Float32Array(1), 'f32'));

class BlankReader extends TensorReader {
  override readonly isBlank = true;
  override async *streamRows(): AsyncGenerator<RowPiece, void, void> {}
}

const SOURCE = {
  name: 'synthetic weights',
  size: () => Promise.resolve(undefined),
  version: () => Promise.resolve(undefined),
  read: () => Promise.reject(new Error('synthetic weights have no files')),
};

function indexOf(config: ModelConfig, slice: RankSlice, table: Float32Array, types: WeightTypes): TensorIndex {
  const { vision, sound, hiddenSize } = config;
  const encoders = [
    vision && (vision.tower.layers.length > 0 ? encoderSpecs : embedderSpecs)(vision, hiddenSize),
    sound && ('frame' in sound ? embedderSpecs(sound, hiddenSize) : soundSpecs(sound, hiddenSize)),
  ].flatMap((specs) => [...specsIn(specs)]);
  const expected = [...expectedTensors([...weightSpecs(config, slice), ...encoders])].map(
    ([name, { shape }]) => [name, shape] as const,
  );
  // What the host reads.
  const inputs = perLayerTable(config);
  const tables = [inputs && { name: inputs.name, shape: [inputs.rows, inputs.columns] }, vision && placesTable(vision)];
  const tensors = new Map(
    [...expected, ...tables.flatMap((table) => (table ? [[table.name, table.shape] as const] : []))].map(
      ([name, shape]) => [name, entryOf(name, shape, table, typeOfTensor(types, name))],
    ),
  );
  return { tensors, totalBytes: 0, files: [] };
}

function entryOf(name: string, shape: readonly number[], table: Float32Array, type: MatrixType): TensorEntry {
  const isVector = shape.length < 2;
  // Rows of deviation 1 / sqrt(columns) keep activations near 1; norms scale by about 1.
  const scale = isVector ? 0.1 : 1 / Math.sqrt(shape.at(-1)!);
  const values = table.map((value) => (isVector ? 1 : 0) + scale * value);
  const numbers = shape.reduce((product, extent) => product * extent, 1);
  const kept = isVector || !isKept(type) ? undefined : { type, blocks: type.toUpperCase() as BlockType };
  const pool = kept ? randomBlocks(kept.type, new Random(1), BLOCKS, scale) : new Uint8Array();
  return {
    name,
    file: '',
    dtype: kept?.blocks ?? 'F32',
    shape,
    start: 0,
    end: numbers * 4,
    slice: (_, columnStart, columnEnd) => {
      const width = columnEnd - columnStart;
      const blockBytes = kept ? keptPlanes(kept.type).bytes : 0;
      const rowBytes = kept ? (width / blockElements(kept.type)) * blockBytes : 0;
      return {
        name,
        width,
        rowBytes: width * 4,
        blocks: kept && { type: kept.blocks, rowBytes },
        read: (rowStart, rowEnd) =>
          Promise.resolve({
            bytes: (rowEnd - rowStart) * width * 4,
            convertTo: (out) => {
              for (let row = rowStart; row < rowEnd; row++)
                fillRow(rowOf(out, row - rowStart, width), values, row * STRIDE + columnStart);
            },
            copyTo: (out) => {
              // Whole blocks, which begin anywhere in the pool.
              for (let row = rowStart; row < rowEnd; row++)
                fillRow(rowOf(out, row - rowStart, rowBytes), pool, row * STRIDE * blockBytes);
            },
          }),
      };
    },
  };
}

const rowOf = <T extends Float32Array | Uint8Array>(rows: T, row: number, length: number): T =>
  rows.subarray(row * length, (row + 1) * length) as T;

function fillRow<T extends Float32Array | Uint8Array>(out: T, values: T, from: number): void {
  for (let at = 0; at < out.length;) {
    const start = (from + at) % values.length;
    const count = Math.min(out.length - at, values.length - start);
    out.set(values.subarray(start, start + count), at);
    at += count;
  }
}
