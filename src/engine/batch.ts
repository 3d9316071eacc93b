import type { Transfer } from '../distributed/communicator.js';
import { type Buffer, type Device, type Program, Recorder, type StepShape } from '../gpu/index.js';
import type { Forward, RowBuffers } from '../model/forward.js';
import { recordGatherLogits } from '../model/vocab_ranks.js';
import type { World } from '../model/world.js';
import type { StartOptions } from './rank.js';
import { Readback } from './readback.js';
import { Sampler } from './sampling.js';

/** Steps that may be in flight at once: the readback pool and the ids ring hold this many and the first token's. */
export const MAX_STEPS_IN_FLIGHT = 4;
const RING = 8;
const INACTIVE = 0xffffffff;

/** Slots that are decoded side by side on a rank: their rows, and on the root their sampling. */
export class Batch {
  readonly #rows: RowBuffers;
  /** Rows whose first token is to be sampled, on ranks that hold rows of the head. */
  readonly headX: Buffer | undefined;
  /** f32 [slots][logitsStride], on ranks that hold rows of the head and on the root. */
  readonly #logits: Buffer | undefined;
  readonly #sampler: Sampler | undefined;
  readonly #ids: Readback | undefined;
  /** One decode step up to the last layer's rows. */
  readonly #layers: Program;
  /** From rows to sampled ids; without drawing until a request draws. */
  #sampling: { readonly program: Program; readonly draws: boolean };
  /** vec2<u32> [slots]: row_info of rows whose first token is to be sampled. */
  readonly #firstInfo: Buffer;
  /** Those rows: their prompt's last row is in headX. */
  readonly #first = new Set<number>();

  /** Slots [firstSlot, firstSlot + slots) of the rank. */
  constructor(
    readonly device: Device,
    readonly world: World,
    readonly forward: Forward,
    readonly vocabSize: number,
    readonly slots: number,
    readonly firstSlot: number,
  ) {
    const { hiddenStride, logitsStride } = forward;
    this.#rows = forward.allocateRows('generated', slots);
    const heads = forward.headRows > 0;
    this.headX = heads ? device.createBuffer('head x', slots * hiddenStride * 4) : undefined;
    if (world.rank === world.topology.root) {
      this.#sampler = new Sampler(device, {
        slots,
        vocabSize,
        logitsStride,
        ring: RING,
        tokens: this.#rows.tokens,
        rowInfo: this.#rows.rowInfo,
      });
      this.#logits = this.#sampler.logits;
      this.#ids = new Readback(device, slots * 4, MAX_STEPS_IN_FLIGHT);
    } else if (heads) {
      this.#logits = device.createBuffer('logits', slots * logitsStride * 4);
    }
    this.#firstInfo = device.createBuffer('first row_info', slots * 8);
    this.#layers = this.#record('decode', (recorder) => {
      this.#recordNext(recorder);
      forward.recordLayers(recorder, this.#rows);
    });
    this.#sampling = this.#recordSampling(false);
    for (let row = 0; row < slots; row++) this.#writeRowInfo(row, INACTIVE);
  }

  get dispatches(): number {
    return this.#layers.dispatchCount + this.#sampling.program.dispatchCount;
  }

  get hops(): number {
    return this.#layers.hopCount + this.#sampling.program.hopCount;
  }

  #record(label: string, body: (recorder: Recorder) => void): Program {
    const recorder = new Recorder(this.device, label);
    body(recorder);
    return recorder.finish();
  }

  #recordSampling(draws: boolean): { readonly program: Program; readonly draws: boolean } {
    const { forward, slots } = this;
    const { x, normed } = this.#rows;
    const program = this.#record('sampling', (recorder) => {
      if (!this.#logits) return;
      if (forward.headRows > 0) forward.recordHead(recorder, x, normed, slots, this.#logits);
      recordGatherLogits(recorder, this.world, this.#logits, forward.logitsStride);
      this.#sampler?.record(recorder, draws);
    });
    return { program, draws };
  }

  /** The sampled tokens and their positions go from the root to every other rank. */
  #recordNext(recorder: Recorder): void {
    const { rank, plan, topology } = this.world;
    const { tokens, rowInfo } = this.#rows;
    const transfer = (peer: number): Transfer => ({
      peer,
      regions: [
        { buffer: tokens, offset: 0, size: this.slots * 4 },
        { buffer: rowInfo, offset: 0, size: this.slots * 8 },
      ],
    });
    const others = Array.from({ length: plan.worldSize }, (_, other) => other).filter(
      (other) => other !== topology.root,
    );
    this.world.hop(recorder, 'next tokens', () =>
      rank === topology.root
        ? { sends: others.map(transfer), receives: [] }
        : { sends: [], receives: [transfer(topology.root)] },
    );
  }

  /**
   * Begins sampling at a row whose last prompt token was at `position`; the next step samples it from headX.
   * @param seen tokens of the prompt and of what was generated before
   */
  async start(row: number, sampling: StartOptions, seen: Uint32Array, position: number): Promise<void> {
    this.#first.add(row);
    await this.#prepare(row, sampling, seen);
    if (this.#sampler) this.device.write(this.#firstInfo, row * 8, new Uint32Array([position, this.firstSlot + row]));
  }

  /** Goes on with a request at a row: `token`, the last one sampled, is fed at `position` by the next decode step. */
  async resume(row: number, sampling: StartOptions, seen: Uint32Array, token: number, position: number): Promise<void> {
    await this.#prepare(row, sampling, seen);
    if (!this.#sampler) return;
    this.device.write(this.#rows.tokens, row * 4, new Uint32Array([token]));
    this.#writeRowInfo(row, position);
  }

  async #prepare(row: number, sampling: StartOptions, seen: Uint32Array): Promise<void> {
    if (!this.#sampler) return;
    if ((sampling.temperature ?? 0) > 0 && !this.#sampling.draws) {
      const greedy = this.#sampling.program;
      this.#sampling = await this.device.checked('preparing sampling', () => this.#recordSampling(true));
      greedy.dispose();
    }
    this.#sampler.start(row, sampling, [...seen]);
  }

  /**
   * Samples a token of every active row: rows that were just started from their prompt, and with `decodes` the others after a
   * decode step. The root's answer awaits the sampled ids.
   */
  async step(decodes: boolean, step: StepShape): Promise<(() => Promise<Uint32Array>) | undefined> {
    const { device } = this;
    const { program } = this.#sampling;
    let encoder = device.gpu.createCommandEncoder();
    if (this.#first.size === 0 && this.hops === 0) {
      const pass = encoder.beginComputePass();
      if (decodes) this.#layers.encode(pass, step);
      program.encode(pass, step);
      pass.end();
    } else {
      if (decodes) encoder = await this.#layers.run(encoder, step);
      this.#placeFirst(encoder);
      encoder = await program.run(encoder, step);
    }
    const next = this.#sampler?.nextIds();
    const read = next && this.#ids!.record(encoder, next.ids, next.offset);
    device.gpu.queue.submit([encoder.finish()]);
    return read;
  }

  #placeFirst(encoder: GPUCommandEncoder): void {
    const bytes = this.forward.hiddenStride * 4;
    for (const row of this.#first) {
      if (this.headX) encoder.copyBufferToBuffer(this.headX.gpu, row * bytes, this.#rows.x.gpu, row * bytes, bytes);
      if (this.#sampler) {
        encoder.copyBufferToBuffer(this.#firstInfo.gpu, row * 8, this.#rows.rowInfo.gpu, row * 8, 8);
      }
    }
    this.#first.clear();
  }

  stop(row: number): void {
    this.#first.delete(row);
    this.#writeRowInfo(row, INACTIVE);
    this.#sampler?.stop(row);
  }

  async logitsOf(row: number): Promise<Float32Array | undefined> {
    if (!this.#sampler) return undefined;
    const bytes = await this.device.read(this.#logits!, row * this.forward.logitsStride * 4, this.vocabSize * 4);
    return new Float32Array(bytes);
  }

  /** Only the root's counts: it sends them to the others with each step. */
  #writeRowInfo(row: number, position: number): void {
    this.device.write(this.#rows.rowInfo, row * 8, new Uint32Array([position, this.firstSlot + row]));
  }
}
