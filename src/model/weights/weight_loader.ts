/**
 * Room: which tensors a rank needs, in which type, and how they become GPU buffers (here). weight_map.ts says what a matrix is made of,
 * model_map.ts which of them a rank has, and counts them beforehand.
 */

import type { WeightType } from '../../../shaders/linear/pack.js';
import { known } from '../../base/errors.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import type { RankSlice } from '../shape.js';
import { type HalfMap, type LayerMap, type ModelMap, modelMap } from './model_map.js';
import {
  allocateBeside,
  allocateMatrix,
  fillMatrix,
  type FillOptions,
  type Matrix,
  MatrixWriter,
  reorderRows,
} from './matrix.js';
import {
  type Absorbed,
  type AbsorbedSpec,
  allRows,
  expectedTensors,
  isMatrixSpec,
  isSpec,
  type Loaded,
  type MatrixSpec,
  matrixType,
  type PackedAs,
  paddedRows,
  type Part,
  specRows,
  specsIn,
  typedRuns,
  vectorLength,
  type VectorSpec,
} from './weight_map.js';
import type { WeightTypes } from './weight_types.js';

/** A rank's slice of a layer. Vectors that aren't cut are whole. */
export type LayerWeights = Loaded<LayerMap>;

/** Of attention or the MLP, with the norms before and behind it. */
export type HalfWeights<Weights> = Loaded<Omit<HalfMap<unknown>, 'weights'>> & { readonly weights: Weights };

/** A rank's slice of a model on a device. Tied tables of the same rows are one object. */
export interface ModelWeights extends Loaded<ModelMap> {
  readonly type: WeightTypes;
  readonly bytes: number;
}

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
  /** What another model on the device has of the same checkpoint, which isn't loaded again. */
  readonly tables?: VocabTables | undefined;
}

export type VocabTables = Pick<ModelWeights, 'embedding' | 'head'>;

/**
 * Puts a model's tensors on a device. Every tensor's presence and shape is checked on construction, so a wrong checkpoint fails
 * before bytes are read or buffers made.
 */
class WeightLoader<Parts extends object> {
  readonly #loaded = new WeakMap<object, unknown>();
  /** Allocated with the matrix that they lie behind. */
  readonly #beside = new WeakMap<MatrixSpec, Matrix>();
  readonly #before: number;
  readonly #fill: FillOptions;

  /** @throws SplitkvError `format` for a missing or misshapen tensor. */
  constructor(
    readonly device: Device,
    readonly reader: TensorReader,
    readonly types: WeightTypes,
    readonly map: Parts,
    { signal, onProgress }: LoadWeightsOptions,
  ) {
    const tensors = expectedTensors(specsIn(map), types);
    let totalBytes = 0;
    for (const [name, { shape, numbers }] of tensors) {
      reader.expectTensor(name, shape);
      totalBytes += numbers * this.#elementBytes(name);
    }
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

  /** The map with buffers in place of specs, in its order; what stands there twice is loaded once. */
  load(): Promise<Loaded<Parts>> {
    return this.#load(this.map) as Promise<Loaded<Parts>>;
  }

  async #load(part: unknown): Promise<unknown> {
    if (typeof part !== 'object' || part === null) return part;
    const known = this.#loaded.get(part);
    if (known !== undefined) return known;
    const made = await (isSpec(part) ? this.#made(part) : this.#each(part));
    this.#loaded.set(part, made);
    return made;
  }

  async #each(parts: object): Promise<object> {
    const made: [string, unknown][] = [];
    for (const [key, part] of Object.entries(parts)) made.push([key, await this.#load(part)]);
    return Array.isArray(parts) ? made.map(([, each]) => each) : Object.fromEntries(made);
  }

  #made(spec: MatrixSpec | VectorSpec): Promise<object> {
    if (!isMatrixSpec(spec)) return this.#vector(spec);
    return spec.packedAs ? this.#absorbed(spec as AbsorbedSpec) : this.#matrix(spec);
  }

  async #matrix(spec: MatrixSpec): Promise<Matrix> {
    const [run, ...others] = typedRuns(spec, this.types);
    const first = await this.#run(run.spec);
    const shards = [...first.shards];
    for (const { spec: next, firstRow } of others)
      for (const shard of (await this.#run(next)).shards)
        shards.push({ ...shard, firstRow: firstRow + shard.firstRow });
    return { ...first, outFeatures: specRows(spec), shards };
  }

  /** Of one type. */
  async #run(spec: MatrixSpec): Promise<Matrix> {
    const { device } = this;
    const allocated =
      this.#beside.get(spec) ?? (await device.checked(`loading ${spec.name}`, () => this.#allocated(spec)));
    await fillMatrix(device, allocated, spec, this.reader, this.#fill);
    return allocated;
  }

  #allocated(spec: MatrixSpec): Matrix {
    const { device, types } = this;
    const { beside } = spec;
    const packed = matrixType(spec, types);
    const fits = beside && typedRuns(beside, types).every((run, at) => at === 0 && run.type === packed);
    const both = fits ? allocateBeside(device, [spec, beside], packed) : undefined;
    if (beside && both) this.#beside.set(beside, both[1]);
    return both?.[0] ?? allocateMatrix(device, spec, packed);
  }

  /**
   * Cut into W_UK and W_UV a head, W_UK transposed: q_nope . (W_UK c) = (W_UK^T q_nope) . c, so keys needn't be expanded. A head's
   * rows are those of W_UK and then of W_UV.
   */
  async #absorbed(spec: AbsorbedSpec): Promise<Absorbed> {
    const { inFeatures: rank, packedAs, parts } = spec;
    const [half, other] = packedAs;
    const type = matrixType(spec, this.types) as WeightType;
    const [absorb, valueUp] = [await this.#writer(half, type), await this.#writer(other, type)];
    const [{ tensor, firstRow, rows }] = parts as readonly [Part];
    const [heads, nope] = [half.rows / rank, half.columns];
    if (!this.reader.isBlank) {
      for (let row = firstRow; row < firstRow + rows; row += rows / heads) {
        const stored = await this.#rows(known(tensor, 'tensor of kv_b_proj'), row, row + rows / heads);
        const transposed = new Float32Array(rank * nope);
        for (let n = 0; n < nope; n++) for (let r = 0; r < rank; r++) transposed[r * nope + n] = stored[n * rank + r]!;
        await absorb.append(transposed, rank);
        const values = new Float32Array((other.rows / heads) * rank);
        values.set(stored.subarray(nope * rank));
        await valueUp.append(values, other.rows / heads);
      }
      await absorb.end();
      await valueUp.end();
    }
    return { absorb: absorb.matrix, valueUp: valueUp.matrix };
  }

  async #vector(spec: VectorSpec): Promise<Buffer> {
    const values = new Float32Array(vectorLength(spec));
    const { columns = 1, plus = 0, times = 1, as } = spec;
    const made = (value: number): number => (as ? Math.exp(value) : value * times) + plus;
    let at = 0;
    for (const part of spec.parts) {
      const { tensor, firstRow, rows, order } = part;
      if (tensor !== undefined) {
        const stored = await this.#rows(tensor, firstRow, firstRow + rows);
        const whole = plus !== 0 || times !== 1 || as ? stored.map(made) : stored;
        values.set(order ? reorderRows(whole, order, rows, columns) : whole, at);
      } else values.fill(plus, at, at + rows * columns);
      at += paddedRows(part) * columns;
    }
    const buffer = this.device.createBuffer(spec.name, values.byteLength);
    this.device.write(buffer, 0, values);
    return buffer;
  }

  /** Rows of a tensor on the host, for matrices that aren't stacks of rows. */
  async #rows(tensor: string, first: number, end: number): Promise<Float32Array> {
    const data = await this.reader.readRows(tensor, first, end, { signal: this.#fill.signal });
    this.#fill.onBytes(data.length * this.#elementBytes(tensor), tensor);
    return data;
  }

  /** Of a matrix that isn't a stack of checkpoint rows; in one binding. */
  async #writer({ name, rows, columns: inFeatures }: PackedAs, type: WeightType): Promise<MatrixWriter> {
    const { device } = this;
    const spec = { name, inFeatures, parts: [allRows(name, rows)], whole: true };
    const matrix = await device.checked(`loading ${name}`, () => allocateMatrix(device, spec, type));
    return new MatrixWriter(device, matrix, inFeatures, this.#fill.flush);
  }

  #elementBytes(tensor: string): number {
    const { shape } = this.reader.entry(tensor);
    return this.reader.byteLength(tensor) / shape.reduce((product, extent) => product * extent, 1);
  }
}

/**
 * Loads a checkpoint: a rank's slice, or all of it.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadModelWeights(
  device: Device,
  config: ModelConfig,
  reader: TensorReader,
  types: WeightTypes,
  options: LoadWeightsOptions & { readonly slice?: RankSlice | undefined } = {},
): Promise<ModelWeights> {
  const map = modelMap(config, options.slice);
  const own = options.tables ? { ...map, embedding: undefined, head: undefined } : map;
  const { loaded, bytes } = await loadSpecs(device, reader, types, own, options);
  return { ...loaded, ...options.tables, type: types, bytes };
}

/** What a map says, and the bytes that it takes. @throws as `loadModelWeights` */
export async function loadSpecs<Parts extends object>(
  device: Device,
  reader: TensorReader,
  types: WeightTypes,
  map: Parts,
  options: LoadWeightsOptions,
): Promise<{ readonly loaded: Loaded<Parts>; readonly bytes: number }> {
  const loader = new WeightLoader(device, reader, types, map, options);
  return { loaded: await loader.load(), bytes: loader.bytes };
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
