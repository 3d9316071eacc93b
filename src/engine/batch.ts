import type { Transfer } from '../distributed/communicator.js';
import { type Buffer, type Device, type Program, Recorder, type StepShape } from '../gpu/index.js';
import type { Forward, RowBuffers } from '../model/forward.js';
import { recordGatherLogits } from '../model/vocab_ranks.js';
import type { World } from '../model/world.js';
import type { DrawOptions } from './rank.js';
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
  /** Programs that end in sampling; greedy ones until a request draws. */
  #programs: { readonly step: Program; readonly head: Program; readonly draws: boolean };

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
    this.#programs = this.#record(false);
    for (let row = 0; row < slots; row++) this.#writeRowInfo(row, INACTIVE);
  }

  /** One decode step. */
  get program(): Program {
    return this.#programs.step;
  }

  /** The first token after a prompt. */
  get head(): Program {
    return this.#programs.head;
  }

  #record(draws: boolean): { step: Program; head: Program; draws: boolean } {
    const { device, forward, slots } = this;
    const { x, normed } = this.#rows;
    const program = (label: string, body: (recorder: Recorder) => void): Program => {
      const recorder = new Recorder(device, label);
      body(recorder);
      return recorder.finish();
    };
    const recordHead = (recorder: Recorder, from: Buffer | undefined): void => {
      if (!this.#logits) return;
      if (from) forward.recordHead(recorder, from, normed, slots, this.#logits);
      recordGatherLogits(recorder, this.world, this.#logits, forward.logitsStride);
      this.#sampler?.record(recorder, draws);
    };
    return {
      draws,
      step: program('decode', (recorder) => {
        this.#recordNext(recorder);
        forward.recordLayers(recorder, this.#rows);
        recordHead(recorder, forward.headRows > 0 ? x : undefined);
      }),
      head: program('head', (recorder) => recordHead(recorder, this.headX)),
    };
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

  /** Begins sampling at a row whose last prompt token was at `position`. */
  async start(row: number, sampling: DrawOptions, prompt: Uint32Array, position: number): Promise<void> {
    if (!this.#sampler) return;
    if ((sampling.temperature ?? 0) > 0 && !this.#programs.draws) {
      const greedy = this.#programs;
      this.#programs = await this.device.checked('preparing sampling', () => this.#record(true));
      greedy.step.dispose();
      greedy.head.dispose();
    }
    this.#writeRowInfo(row, position);
    this.#sampler.start(row, sampling, [...prompt]);
  }

  /** Replays a program that ends in sampling. The root's answer awaits the sampled ids. */
  async replay(program: Program, step: StepShape): Promise<(() => Promise<Uint32Array>) | undefined> {
    const { device } = this;
    const encoder = device.gpu.createCommandEncoder();
    const last = program.hopCount === 0 ? this.#encode(encoder, program, step) : await program.run(encoder, step);
    const next = this.#sampler?.nextIds();
    const read = next && this.#ids!.record(last, next.ids, next.offset);
    device.gpu.queue.submit([last.finish()]);
    return read;
  }

  #encode(encoder: GPUCommandEncoder, program: Program, step: StepShape): GPUCommandEncoder {
    const pass = encoder.beginComputePass();
    program.encode(pass, step);
    pass.end();
    return encoder;
  }

  stop(row: number): void {
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
