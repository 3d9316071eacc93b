import { type PackedType, packTiles, type WeightType } from '../../../shaders/linear/pack.js';
import { alignUp } from '../../base/math.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { allocateMatrix, fillMatrix, type FillOptions, type Matrix, reorderRows } from './matrix.js';
import {
  allRows,
  expectedTensors,
  type MatrixSpec,
  matrixType,
  type PackedAs,
  type Spec,
  vectorLength,
  type VectorSpec,
  type VocabSpec,
} from './weight_map.js';

const elementAs = {
  itself: (value: number): number => value,
  exp: Math.exp,
  negated: (value: number): number => -value,
} as const;

export interface WeightProgress {
  readonly loadedBytes: number;
  /** Bytes of the checkpoint that this load needs: of a tensor it holds a slice of, the slice's. */
  readonly totalBytes: number;
  readonly tensorsLoaded: number;
  readonly tensorsTotal: number;
  readonly tensor: string;
}

export interface LoadWeightsOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: WeightProgress) => void) | undefined;
}

/** Rows of the vocabulary: of the embedding table or the output head. */
export interface VocabMatrix {
  readonly matrix: Matrix;
  /** The vocabulary's number of the matrix's row 0. */
  readonly firstRow: number;
}

/**
 * Puts a model's tensors on a device. Every tensor's presence and shape is checked on construction, so a wrong checkpoint fails
 * before bytes are read or buffers made.
 */
export class WeightLoader {
  /** Numbers read from all the tensors. */
  readonly parameters: number;
  readonly #before: number;
  readonly #fill: FillOptions;

  /** @throws SplitkvError `format` for a missing or misshapen tensor. */
  constructor(
    readonly device: Device,
    readonly reader: TensorReader,
    readonly type: WeightType,
    specs: Iterable<Spec>,
    { signal, onProgress }: LoadWeightsOptions,
  ) {
    const tensors = expectedTensors(specs);
    let totalBytes = 0;
    let parameters = 0;
    for (const [name, { shape, numbers }] of tensors) {
      reader.expectTensor(name, shape);
      totalBytes += numbers * this.#elementBytes(name);
      parameters += numbers;
    }
    this.parameters = parameters;
    this.#before = device.usage.bytes;
    let loadedBytes = 0;
    const seen = new Set<string>();
    this.#fill = {
      signal,
      flush: flushEvery(device, 64 * 2 ** 20),
      onBytes: (bytes, tensor) => {
        loadedBytes += bytes;
        seen.add(tensor);
        onProgress?.({ loadedBytes, totalBytes, tensorsLoaded: seen.size, tensorsTotal: tensors.size, tensor });
      },
    };
  }

  /** Bytes on the GPU of what was loaded so far. */
  get bytes(): number {
    return this.device.usage.bytes - this.#before;
  }

  /** A packed matrix, streamed; undefined for one that isn't there. `whole` and `granule`: see `allocateMatrix`. */
  async matrix<S extends MatrixSpec | undefined>(
    spec: S,
    options: { readonly whole?: boolean; readonly granule?: number } = {},
  ): Promise<S extends MatrixSpec ? Matrix : undefined> {
    if (!spec) return undefined as never;
    const { device } = this;
    const allocated = await device.checked(`loading ${spec.name}`, () =>
      allocateMatrix(device, spec, matrixType(spec, this.type), options),
    );
    await fillMatrix(device, allocated, spec, this.reader, this.#fill);
    return allocated as never;
  }

  /** The same of experts, which may be kept as they are stored. */
  async experts(
    spec: MatrixSpec | undefined,
    options: { readonly granule: number },
  ): Promise<Matrix<PackedType> | undefined> {
    return this.matrix(spec, options);
  }

  async vocab(spec: VocabSpec | undefined): Promise<VocabMatrix | undefined> {
    return spec && { matrix: await this.matrix(spec.matrix), firstRow: spec.firstRow };
  }

  /** An f32 vector (norm weight, bias); undefined for one the model doesn't have. */
  async vector<S extends VectorSpec | undefined>(spec: S): Promise<S extends VectorSpec ? Buffer : undefined> {
    if (!spec) return undefined as never;
    const values = new Float32Array(vectorLength(spec));
    let at = 0;
    for (const part of spec.parts) {
      if (part.tensor !== undefined) {
        const columns = part.shape?.at(-1) ?? 1;
        const [first, end] = [part.first / columns, (part.first + part.length) / columns];
        const stored = await this.rows(part.tensor, first, end);
        const { plus = 0, as } = part;
        const whole =
          plus === 0 && as === undefined ? stored : stored.map((value) => elementAs[as ?? 'itself'](value) + plus);
        values.set(part.order ? reorderRows(whole, part.order, part.length, 1) : whole, at);
      }
      at += alignUp(part.length, part.padTo ?? 1);
    }
    const buffer = this.device.createBuffer(spec.name, values.byteLength);
    this.device.write(buffer, 0, values);
    return buffer as never;
  }

  /** Rows of a tensor on the host, for matrices that aren't stacks of rows. */
  async rows(tensor: string, first: number, end: number): Promise<Float32Array> {
    const data = await this.reader.readRows(tensor, first, end, { signal: this.#fill.signal });
    this.#fill.onBytes(data.length * this.#elementBytes(tensor), tensor);
    return data;
  }

  /**
   * A packed matrix [outFeatures, inFeatures] made from rows on the host, appended in multiples of 32 (the last may be fewer).
   * For matrices that aren't stacks of checkpoint rows.
   */
  async packer(
    { name, rows: outFeatures, columns: inFeatures }: PackedAs,
    type: WeightType,
  ): Promise<{ readonly matrix: Matrix; append(rows: Float32Array): Promise<void> }> {
    const { device } = this;
    const spec = { name, inFeatures, parts: [allRows(name, outFeatures)] };
    const matrix = await device.checked(`loading ${name}`, () => allocateMatrix(device, spec, type, { whole: true }));
    const { weight, scale } = matrix.shards[0]!;
    let at = 0;
    let scaleAt = 0;
    return {
      matrix,
      append: async (rows) => {
        const packed = packTiles(type, rows, rows.length / inFeatures, inFeatures);
        device.write(weight, at, packed.weight);
        at += packed.weight.byteLength;
        if (scale && packed.scale) {
          device.write(scale, scaleAt, packed.scale);
          scaleAt += packed.scale.byteLength;
        }
        await this.#fill.flush(packed.weight.byteLength);
      },
    };
  }

  #elementBytes(tensor: string): number {
    const { shape } = this.reader.entry(tensor);
    return this.reader.byteLength(tensor) / shape.reduce((product, extent) => product * extent, 1);
  }
}

/**
 * `writeBuffer` data waits in host memory until the queue has taken it: every `limit` bytes, let the queue catch up, so that
 * loading a large model needs little host memory.
 */
function flushEvery(device: Device, limit: number): (bytes: number) => Promise<void> {
  let pending = 0;
  return async (bytes) => {
    pending += bytes;
    if (pending < limit) return;
    pending = 0;
    device.gpu.queue.submit([]);
    await device.wait(device.gpu.queue.onSubmittedWorkDone());
  };
}
