import { nth, sum } from '../../base/lists.js';
import { internalError } from '../../base/errors.js';
import { INACTIVE } from '../../base/kv_units.js';
import { type Buffer, type Device, type Program, Recorder } from '../../gpu/index.js';
import type { Decoder, DecoderRows } from '../../model/forward/decoder.js';
import { headShares, recordGatherCandidates, recordGatherLogits } from '../../model/layers/linear/vocab.js';
import type { RankRecorder, RankStep, World } from '../../model/layers/world.js';
import { MAX_STEPS_IN_FLIGHT, tokenRoutes } from '../../placement/index.js';
import type { AttentionTimes } from './attention_times.js';
import type { AllowedTokens, StartOptions, VerifiedRun } from '../contracts/rank.js';
import { hasControls } from './sampling/sampling_options.js';
import { Sampler, type SamplingMode, SlotNeeds } from './sampling/sampling.js';

/** The readback pool and the ids ring hold the ids of all steps in flight, and the first token's. */
const RING = 2 * MAX_STEPS_IN_FLIGHT;

/** Programs of a decode step of some rows: the first `buffers.rows` of the batch. */
interface StepPrograms {
  readonly buffers: DecoderRows;
  /** One decode step up to the last layer's rows; recorded when first needed. */
  layers: Program<RankStep> | undefined;
  /** From rows to sampled ids; recorded when a mode is first needed, without controls or with. */
  readonly sampling: Map<Sampling, Program<RankStep>>;
}

type Sampling = SamplingMode | `${SamplingMode} controlled`;

/** Slots that are decoded side by side on a rank: their rows, and on ranks that hold rows of the head their sampling. */
export class Batch {
  readonly #rows: DecoderRows;
  /** Rows whose first token is to be sampled, on ranks that hold rows of the head. */
  readonly headX: Buffer | undefined;
  /** On ranks that hold rows of the head, of which the root is one. */
  readonly #sampler: Sampler | undefined;
  /** On the root, as `#firstInfo`. */
  readonly #ids: Readback | undefined;
  /** By rows, ascending: of a lone row the kernels are others, and of a few they read no more than these need. */
  readonly #programs: readonly StepPrograms[];
  readonly #needs = new SlotNeeds();
  /** vec2<u32> [slots]: row_info of rows whose first token is to be sampled. */
  readonly #firstInfo: Buffer;
  /** Those rows: their prompt's last row is in headX. */
  readonly #first = new Set<number>();

  /** Of a decode step of one greedy request, as `exchanges`. */
  readonly dispatches: number;
  readonly exchanges: number;

  /**
   * Slots [firstSlot, firstSlot + rows) are this rank's; all ranks together have `allRows`, where each runs its own. `sizes`: of drafts
   * to be verified, which are several rows of a slot: rows that steps have programs for, ascending, all recorded at once; default 1,
   * recorded at once, and all, a row a slot.
   */
  constructor(
    readonly device: Device,
    readonly world: World,
    readonly forward: Decoder,
    readonly vocabSize: number,
    readonly own: {
      readonly rows: number;
      readonly allRows: number;
      readonly firstSlot: number;
      readonly sizes?: readonly number[];
    },
  ) {
    const { hiddenStride, logitsStride } = forward;
    const { rows: slots, allRows } = own;
    const distinct = own.sizes === undefined;
    this.#rows = forward.allocateRows('generated', slots, { allRows: Math.max(slots, allRows), distinct });
    const heads = forward.headRows > 0;
    this.headX = heads ? device.createBuffer('head x', slots * hiddenStride * 4) : undefined;
    if (heads) {
      const shares = headShares(world);
      this.#sampler = new Sampler(device, {
        slots,
        vocab: vocabSize,
        stride: logitsStride,
        ring: RING,
        slices: shares.map((share) => share.rows),
        part: shares.findIndex((share) => share.rank === world.rank),
        tokens: this.#rows.tokens,
        rowInfo: this.#rows.rowInfo,
      });
    }
    if (this.#sampler?.samples) this.#ids = new Readback(device, slots * 4, MAX_STEPS_IN_FLIGHT);
    this.#firstInfo = device.createBuffer('first row_info', slots * 8);
    this.#programs = [...new Set([...(own.sizes ?? [1]), slots])].map((size): StepPrograms => ({
      buffers: size === slots ? this.#rows : forward.allocateRows('generated', size, { distinct, like: this.#rows }),
      layers: undefined,
      sampling: new Map(),
    }));
    for (const programs of own.sizes ? this.#programs : this.#programs.slice(0, 1)) {
      programs.layers = this.#recordLayers(programs);
      programs.sampling.set('greedy', this.#recordSampling(programs, 'greedy'));
    }
    const { layers, sampling } = nth(this.#programs, 0);
    const first = [layers!, sampling.get('greedy')!];
    this.dispatches = sum(first.map(({ dispatchCount }) => dispatchCount));
    this.exchanges = sum(first.map(({ exchangeCount }) => exchangeCount));
    for (let row = 0; row < slots; row++) this.#writeRowInfo(row, INACTIVE);
  }

  /** f32 [slots][hiddenStride]: what the last step left of its rows, before the last norm. */
  get x(): Buffer {
    return this.#rows.x;
  }

  #record(label: string, body: (recorder: RankRecorder) => void): Program<RankStep> {
    const recorder: RankRecorder = new Recorder(this.device, label, this.world.rowsOf('generated'));
    body(recorder);
    return recorder.finish();
  }

  #recordLayers({ buffers }: StepPrograms): Program<RankStep> {
    return this.#record('decode', (recorder) => {
      this.#recordNext(recorder);
      this.#sampler?.recordSeen(recorder, (rows) => (this.#needs.penalises ? this.world.rowsOf('generated')(rows) : 0));
      this.forward.recordLayers(recorder, buffers);
    });
  }

  recordAgain(): void {
    for (const programs of this.#programs) {
      const { layers, sampling } = programs;
      for (const [key, before] of sampling) {
        sampling.set(key, this.#recordSampling(programs, key));
        before.dispose();
      }
      if (!layers) continue;
      programs.layers = this.#recordLayers(programs);
      layers.dispose();
    }
  }

  #recordSampling({ buffers }: StepPrograms, key: Sampling): Program<RankStep> {
    const [mode, controlled] = key.split(' ') as [SamplingMode, 'controlled'?];
    const { forward, world, own } = this;
    const sampler = this.#sampler;
    const rowsOf = world.rowsOf('generated');
    return this.#record('sampling', (recorder) => {
      if (!sampler) return;
      // Rows that verify say whose they are.
      forward.recordHead(recorder, buffers, sampler.logits, own.sizes ? undefined : own.firstSlot);
      const logits = controlled ? sampler.recordControls(recorder) : sampler.logits;
      if (mode === 'whole') {
        recordGatherLogits(recorder, world, logits, { logitsStride: forward.logitsStride, rowsOf });
        if (sampler.samples) sampler.recordCandidates(recorder, mode, logits);
      } else {
        sampler.recordCandidates(recorder, mode, logits);
        recordGatherCandidates(recorder, world, sampler.candidates, {
          slots: own.rows,
          pairs: sampler.pairs(mode),
          rowsOf,
        });
      }
      if (sampler.samples) sampler.recordSample(recorder, mode, logits);
    });
  }

  /** What the present requests are sampled by: the same on every rank. */
  async #samplingNow(programs: StepPrograms): Promise<Program<RankStep>> {
    const mode = this.#sampler?.modeFor(this.#needs.mode) ?? 'greedy';
    const key = this.#needs.controls ? (`${mode} controlled` as const) : mode;
    const recorded = programs.sampling.get(key);
    if (recorded) return recorded;
    const program = await this.device.recorded('preparing sampling', () => this.#recordSampling(programs, key));
    programs.sampling.set(key, program);
    return program;
  }

  /** The sampled tokens and their positions go from the root to every other rank that needs them. */
  #recordNext(recorder: RankRecorder): void {
    const { tokens, rowInfo } = this.#rows;
    this.world.exchangeRoutes(recorder, 'next tokens', tokenRoutes(this.world.all), () => [
      { buffer: tokens, offset: 0, size: this.own.rows * 4 },
      { buffer: rowInfo, offset: 0, size: this.own.rows * 8 },
    ]);
  }

  /**
   * Begins sampling at a row whose last prompt token was at `position`; the next step samples it from headX.
   * @param seen tokens of the prompt and of what was generated before, in order
   */
  async start(row: number, sampling: StartOptions, seen: Uint32Array, position: number): Promise<void> {
    this.#first.add(row);
    await this.#prepare(row, sampling, seen, position, true);
    if (this.#ids) this.device.write(this.#firstInfo, row * 8, new Uint32Array([position, this.own.firstSlot + row]));
  }

  /** Goes on with a request at a row: `token`, the last one sampled, is fed at `position` by the next decode step. */
  async resume(
    row: number,
    sampling: StartOptions,
    seen: Uint32Array,
    token: number,
    position: number,
    inputs: Float32Array | undefined,
  ): Promise<void> {
    await this.#prepare(row, sampling, seen, position, false);
    this.#feed(row, token, position, inputs);
  }

  /**
   * Feeds tokens of slots at positions from each run's `start` on, a row each, and samples a token behind each of them.
   * @param runs of all ranks; this one has the rows of those that it `runs`
   * @param inputs of each of its rows
   */
  async verify(
    runs: readonly VerifiedRun[],
    isOwn: (run: VerifiedRun) => boolean,
    inputs: readonly (Float32Array | undefined)[],
    step: RankStep,
  ): ReturnType<Batch['step']> {
    this.#needs.clear();
    for (const [at, { sampling }] of runs.entries()) {
      if (hasControls(sampling)) await this.#sampler?.prepareControls();
      this.#needs.set(at, sampling);
    }
    let row = 0;
    for (const { slot, tokens, start, sampling, seen } of runs.filter(isOwn)) {
      const { counter = 0, allowed } = sampling;
      const words = (allowed?.length ?? 0) / tokens.length;
      const before = seen.length - tokens.length + 1;
      for (const [at, token] of tokens.entries()) {
        const own = allowed?.subarray(at * words, (at + 1) * words);
        const options = { ...sampling, counter: counter + at, ...(own && { allowed: own }) };
        this.#sampler?.start(row, options, seen.subarray(0, before + at), start + at, false);
        this.#feed(row, token, start + at, inputs[row], slot);
        row++;
      }
    }
    // What a longer step left there would seem to follow, and a state would take it.
    if (row < this.own.rows) this.pause(row);
    return this.step(true, step);
  }

  /** @param inputs of the token (`TokenRows`), on every rank that runs the row */
  #feed(row: number, token: number, position: number, inputs: Float32Array | undefined, slot?: number): void {
    if (inputs) this.#rows.perLayer?.write(row, inputs);
    if (!this.#ids) return;
    this.device.write(this.#rows.tokens, row * 4, new Uint32Array([token]));
    this.#writeRowInfo(row, position, slot);
  }

  async #prepare(row: number, sampling: StartOptions, seen: Uint32Array, position: number, isFirst: boolean) {
    if (hasControls(sampling)) await this.#sampler?.prepareControls();
    this.#needs.set(row, sampling);
    this.#sampler?.start(row, sampling, seen, position, isFirst);
    await this.#samplingNow(nth(this.#programs, 0));
  }

  /**
   * Samples a token of every active row: rows that were just started from their prompt, and with `decodes` the others after a
   * decode step. The root's answer awaits the sampled ids. `times`: takes the time of the decode step's attention.
   */
  async step(
    decodes: boolean,
    step: RankStep,
    times?: AttentionTimes,
  ): Promise<(() => Promise<Uint32Array>) | undefined> {
    const { device } = this;
    // The same on every rank.
    const rows = sum(step.rows);
    const programs = this.#programs.find(({ buffers }) => rows <= buffers.rows) ?? this.#programs.at(-1)!;
    const layers = (programs.layers ??= await device.recorded('preparing decoding', () =>
      this.#recordLayers(programs),
    ));
    const program = await this.#samplingNow(programs);
    const timed = decodes ? times?.begin(layers) : undefined;
    let encoder = device.gpu.createCommandEncoder();
    if (this.#first.size === 0 && this.exchanges === 0 && !timed) {
      const pass = encoder.beginComputePass();
      if (decodes) layers.encode(pass, step);
      program.encode(pass, step);
      pass.end();
    } else {
      if (decodes) encoder = await layers.run(encoder, step, { timed });
      this.#placeFirst(encoder);
      encoder = await program.run(encoder, step);
    }
    // Where another rank's rows needed this one there are none of its own, and so no ids.
    const samples = this.world.rowsOf('generated')(step.rows) > 0;
    const next = samples && this.#ids ? this.#sampler?.nextIds() : undefined;
    const read = next && this.#ids?.record(encoder, next.ids, next.offset);
    timed?.record(encoder);
    device.gpu.queue.submit([encoder.finish()]);
    timed?.submitted();
    return read;
  }

  #placeFirst(encoder: GPUCommandEncoder): void {
    const bytes = this.forward.hiddenStride * 4;
    for (const row of this.#first) {
      if (this.headX) encoder.copyBufferToBuffer(this.headX.gpu, row * bytes, this.#rows.x.gpu, row * bytes, bytes);
      if (this.#ids) encoder.copyBufferToBuffer(this.#firstInfo.gpu, row * 8, this.#rows.rowInfo.gpu, row * 8, 8);
    }
    this.#first.clear();
  }

  /** The row takes no part in steps until `goOn` or `resume`. */
  pause(row: number): void {
    if (this.#ids) this.#writeRowInfo(row, INACTIVE);
  }

  /** A paused row feeds `token`, which it sampled last, at `position` in the next decode step, and samples what is allowed. */
  goOn(
    row: number,
    token: number,
    position: number,
    allowed: AllowedTokens | undefined,
    inputs: Float32Array | undefined,
  ): void {
    if (allowed) this.#sampler?.allow(row, allowed);
    this.#feed(row, token, position, inputs);
  }

  stop(row: number): void {
    this.#first.delete(row);
    this.#needs.delete(row);
    this.#writeRowInfo(row, INACTIVE);
    this.#sampler?.stop(row);
  }

  /** After a failure: every row is stopped, and no step in flight. */
  reset(): void {
    this.#sampler?.reset();
  }

  /** This rank's rows of the head, in order. */
  async logitsOf(row: number): Promise<Float32Array | undefined> {
    if (!this.#sampler) return undefined;
    const { slices, part, stride } = this.#sampler.shape;
    const [first, end] = nth(slices, part);
    const offset = (row * stride + first) * 4;
    return new Float32Array(await this.device.read(this.#sampler.logits, offset, (end - first) * 4));
  }

  /** Only the root's counts: it sends them to the others with each step. */
  #writeRowInfo(row: number, position: number, slot = this.own.firstSlot + row): void {
    this.device.write(this.#rows.rowInfo, row * 8, new Uint32Array([position, slot]));
  }
}

/** A fixed pool of mappable buffers for small results that are read while later steps run. Creates nothing after construction. */
class Readback {
  readonly #free: Buffer[];

  constructor(
    readonly device: Device,
    readonly bytes: number,
    count: number,
  ) {
    this.#free = Array.from({ length: count }, (_, index) =>
      device.createBuffer(`readback ${index}`, bytes, 'staging'),
    );
  }

  /** Encodes the copy; call the returned function after submitting to await and free the buffer. */
  record(encoder: GPUCommandEncoder, source: Buffer, offset: number): () => Promise<Uint32Array> {
    const staging = this.#free.pop();
    if (!staging) throw internalError('more steps in flight than readback buffers');
    encoder.copyBufferToBuffer(source.gpu, offset, staging.gpu, 0, this.bytes);
    return async () => {
      try {
        await this.device.wait(staging.gpu.mapAsync(GPUMapMode.READ));
        const words = new Uint32Array(staging.gpu.getMappedRange()).slice();
        staging.gpu.unmap();
        return words;
      } finally {
        this.#free.push(staging);
      }
    };
  }
}
