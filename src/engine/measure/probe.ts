import type { MatrixType } from '../../../shaders/linear/pack.js';
import { internalError } from '../../base/errors.js';
import { nth, range } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import { type Buffer, type Device, type Program, Recorder } from '../../gpu/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { loadWeights } from '../../model/device_model.js';
import type { Decoder, DecoderRows } from '../../model/forward/decoder.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { uniformTypes } from '../../model/weights/stored_types.js';
import { chunksOf } from '../../model/layers/roles.js';
import { rankSlice } from '../../model/shape.js';
import { World } from '../../model/layers/world.js';
import { INACTIVE, KV_BLOCK } from '../../base/kv_units.js';
import { type ProbeLayers, probePlan } from './probe_layers.js';
import { loadKept } from '../../../shaders/linear/kept/kept.js';
import { eachOf } from '../../model/weights/weight_types.js';
import { syntheticWeights } from './synthetic_weights.js';
import { submitPass, type Timed, timeProgram } from './timing.js';

export interface ProbeSubject {
  readonly config: ModelConfig;
  readonly type: MatrixType;
  readonly kvType: KvType;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Several rows are generated at once; otherwise nothing is known of more than one. */
  readonly batched: boolean;
}

/** Rows that were recorded, and how to place them in a sequence. */
interface ProbeRows {
  readonly buffers: DecoderRows;
  readonly program: Program;
}

/** Longest sequence that is attended to: on the CPU a few chunks are enough to tell, a GPU needs more to do. */
const GPU_CONTEXT = 4096;
const CPU_CONTEXT = 1024;
const MOST_ROWS = 512;
export const BATCH = 8;
/** Rows of the vocabulary: enough to embed tokens that differ. */
const VOCABULARY = 256;

/** A few layers of a model on a device, with random weights, run by the model's own forward program. */
export class Probe {
  readonly #batches: ReadonlyMap<number, ProbeRows>;
  readonly #prompt: ProbeRows;

  private constructor(
    readonly device: Device,
    readonly layers: ProbeLayers,
    readonly contextLength: number,
    readonly forward: Decoder,
    readonly batched: boolean,
  ) {
    const record = (buffers: DecoderRows): ProbeRows => {
      const recorder = new Recorder(device, `probe ${buffers.role}`);
      forward.recordLayers(recorder, buffers);
      const tokens = Uint32Array.from({ length: buffers.rows }, (_, row) => (row * 37) % VOCABULARY);
      device.write(buffers.tokens, 0, tokens);
      return { buffers, program: recorder.finish() };
    };
    const batches = batched ? [1, BATCH] : [1];
    this.#batches = new Map(batches.map((rows) => [rows, record(forward.allocateRows('generated', rows))]));
    const rows = ceilDiv(forward.promptRows(Math.min(MOST_ROWS, contextLength)), 16) * 16;
    this.#prompt = record(forward.allocateRows('prompt', rows));
  }

  /** Allocates and records; everything is freed with the device. @throws SplitkvError `limit` where it doesn't fit. */
  static async open(device: Device, subject: ProbeSubject, layers: ProbeLayers): Promise<Probe> {
    const config = { ...subject.config, vocabSize: Math.min(subject.config.vocabSize, VOCABULARY) };
    const contextLength = Math.min(subject.contextLength, device.adapter.software ? CPU_CONTEXT : GPU_CONTEXT);
    const world = new World(probePlan(layers, config), 0);
    const types = uniformTypes(subject.type, config);
    await loadKept(eachOf(types));
    const reader = syntheticWeights(config, rankSlice(world.plan, 0, config), types);
    const weights = await loadWeights(device, config, reader, types, world);
    return device.checked('preparing to measure', () => {
      const numBlocks = ceilDiv(contextLength, KV_BLOCK);
      const blockTable = device.createBuffer('block_table', numBlocks * 4);
      device.write(blockTable, 0, Uint32Array.from(range(0, numBlocks)));
      const forward = weights.createForward({
        type: subject.kvType,
        block: KV_BLOCK,
        numBlocks,
        blockTable,
        chunkOffsets: device.createBuffer('chunk_offsets', 8),
        runEnds: 1,
        tableStride: numBlocks,
        contextLength,
        states: { count: 1, places: device.createBuffer('state_places', 4), kept: 0 },
      });
      return new Probe(device, layers, contextLength, forward, subject.batched);
    });
  }

  /** The same layers, recorded with what the device now plans kernels with. */
  recordedAnew(): Promise<Probe> {
    const { device, layers, contextLength, forward, batched } = this;
    return device.checked('preparing to compare', () => new Probe(device, layers, contextLength, forward, batched));
  }

  /** The last layer's output for rows at positions `first`, `first + 1`, ...: [rows][hidden stride]. */
  async outputOf(role: 'prompt' | 'generated', rows: number, first: number): Promise<Float32Array> {
    const of = role === 'prompt' ? this.#prompt : this.#batches.get(rows)!;
    return this.#output(
      this.#placed(of, rows, first + rows, (row) => first + row),
      of.buffers.x,
      rows,
    );
  }

  get count(): number {
    return this.layers.layers[1] - this.layers.layers[0];
  }

  /** Most prompt rows that a step may have. */
  get promptRows(): number {
    return Math.min(this.#prompt.buffers.rows, this.contextLength);
  }

  /** 1 or BATCH generated rows, each the last of a sequence of `length` tokens. */
  generated(rows: number, length: number): Timed {
    return this.#placed(this.#batches.get(rows)!, rows, length, () => length - 1);
  }

  /** Prompt rows at positions first .. first + rows - 1. */
  prompt(first: number, rows: number): Timed {
    return this.#placed(this.#prompt, rows, first + rows, (row) => first + row);
  }

  /** Rows at these positions of sequences that have `length` tokens then. */
  #placed({ buffers, program }: ProbeRows, rows: number, length: number, positionOf: (row: number) => number): Timed {
    const info = new Uint32Array(buffers.rows * 2).fill(INACTIVE);
    for (let row = 0; row < rows; row++) info.set([positionOf(row), 0], row * 2);
    buffers.perLayer?.clear(rows);
    this.device.write(buffers.rowInfo, 0, info);
    return { device: this.device, program, step: { rows: [rows], chunks: chunksOf(length) } };
  }

  /**
   * The first token as a prompt row and as a generated row: other kernels, the same numbers. An adapter that computes nonsense isn't
   * worth timing.
   * @throws SplitkvError `internal` where they differ.
   */
  async check(): Promise<void> {
    const prompt = await this.#output(this.prompt(0, 16), this.#prompt.buffers.x, 1);
    const generated = await this.#output(this.generated(1, 1), this.#batches.get(1)!.buffers.x, 1);
    let difference = 0;
    let size = 0;
    for (const [i, value] of generated.entries()) {
      difference += (value - nth(prompt, i)) ** 2;
      size += value ** 2;
    }
    // An expert that two rows choose differently by a hair weighs little; garbage doesn't.
    if (size > 0 && difference <= 0.05 * size) return;
    throw internalError(
      `${this.device.name}: prompt rows and generated rows of the same token give different numbers, so nothing is timed; ` +
        'update the GPU driver, or choose another adapter',
    );
  }

  async #output({ device, program, step }: Timed, x: Buffer, rows: number): Promise<Float32Array> {
    submitPass(device, (pass) => program.encode(pass, step));
    return new Float32Array(await device.read(x, 0, rows * this.forward.hiddenStride * 4));
  }

  /** Seconds of one layer. @param overhead of what isn't the layers: the embedding */
  async layerSeconds(timed: Timed, overhead: number): Promise<number> {
    const seconds = await timeProgram(timed);
    return Math.max((seconds - overhead) / this.count, seconds / this.count / 2);
  }
}
