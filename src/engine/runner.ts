import { PREFILL_TILE_ROWS } from '../../shaders/attention/attention_prefill/index.js';
import { SplitkvError, throwIfAborted, usageError } from '../base/errors.js';
import { alignUp, ceilDiv } from '../base/math.js';
import { type Buffer, type Device, type Program, Recorder } from '../gpu/index.js';
import type { CacheOptions, Forward, RowBuffers } from '../model/forward.js';
import type { KvType } from '../model/kv_cache.js';
import { chunksOf } from '../model/roles.js';
import type { SamplingOptions } from './api.js';
import { BlockManager } from './block_manager.js';
import { Readback } from './readback.js';
import { Sampler } from './sampling.js';

export interface RunnerOptions {
  /** Sequences decoded side by side. */
  readonly slots: number;
  /** Tokens a sequence may have. */
  readonly contextLength: number;
  readonly prefillChunk: number;
  readonly kvType: KvType;
}

/** Tokens a KV block: small enough that short sequences waste little, and it divides the 256-token chunk. */
export const KV_BLOCK = 64;
/** Steps that may be in flight at once: the readback pool and the ids ring hold this many and the first token's. */
export const MAX_STEPS_IN_FLIGHT = 4;
const RING = 8;
/** Rows of logits computed at once by `logits`. */
const LOGITS_ROWS = 8;
const INACTIVE = 0xffffffff;

interface Slot {
  blocks: number[];
  /** Tokens in the cache, or about to be by the steps submitted. */
  length: number;
}

/**
 * One rank's GPU state for a model: cache, activations, captured programs. A step replays a program: one encoder, one compute
 * pass, one submit, nothing created.
 */
export class Runner {
  readonly #slots: Slot[];
  readonly #blocks: BlockManager;
  readonly #blockTable: Buffer;
  readonly #tableStride: number;
  readonly #forward: Forward;
  readonly #generated: RowBuffers;
  readonly #prompt: RowBuffers;
  /** Prompt tokens computed at once. */
  readonly #chunk: number;
  readonly #headX: Buffer;
  readonly #sampler: Sampler;
  readonly #ids: Readback;
  readonly #logitsX: Buffer;
  readonly #logitsRows: Buffer;
  readonly #prefill: Program;
  readonly #logits: Program;
  /** Programs that end in sampling; greedy ones until a request draws. */
  #sampling: { readonly decode: Program; readonly head: Program; readonly draws: boolean };

  private constructor(
    readonly device: Device,
    readonly config: { readonly vocabSize: number; readonly maxPositions: number },
    createForward: (cache: CacheOptions) => Forward,
    readonly options: RunnerOptions,
  ) {
    const { slots, contextLength } = options;
    this.#tableStride = ceilDiv(contextLength, KV_BLOCK);
    const numBlocks = this.#tableStride * slots;
    this.#blocks = new BlockManager(numBlocks, KV_BLOCK);
    this.#slots = Array.from({ length: slots }, () => ({ blocks: [], length: 0 }));
    this.#blockTable = device.createBuffer('block_table', slots * this.#tableStride * 4);
    this.#forward = createForward({
      type: options.kvType,
      block: KV_BLOCK,
      numBlocks,
      blockTable: this.#blockTable,
      tableStride: this.#tableStride,
      contextLength,
    });
    const { hiddenStride, logitsStride } = this.#forward;
    this.#generated = this.#forward.allocateRows('generated', slots);
    this.#chunk = this.#forward.promptRows(Math.min(options.prefillChunk, contextLength));
    this.#prompt = this.#forward.allocateRows('prompt', alignUp(this.#chunk, PREFILL_TILE_ROWS));
    this.#headX = device.createBuffer('head x', slots * hiddenStride * 4);
    this.#logitsX = device.createBuffer('logits x', LOGITS_ROWS * hiddenStride * 4);
    const logitsNormed = device.createBuffer('logits normed', LOGITS_ROWS * hiddenStride * 4);
    this.#logitsRows = device.createBuffer('logits rows', LOGITS_ROWS * logitsStride * 4);
    this.#sampler = new Sampler(device, {
      slots,
      vocabSize: config.vocabSize,
      logitsStride,
      ring: RING,
      tokens: this.#generated.tokens,
      rowInfo: this.#generated.rowInfo,
    });
    this.#ids = new Readback(device, slots * 4, MAX_STEPS_IN_FLIGHT);

    this.#sampling = this.#recordSampling(false);
    this.#prefill = this.#record('prefill', (recorder) => this.#forward.recordLayers(recorder, this.#prompt));
    this.#logits = this.#record('logits', (recorder) =>
      this.#forward.recordHead(recorder, this.#logitsX, logitsNormed, LOGITS_ROWS, this.#logitsRows),
    );
    for (let slot = 0; slot < slots; slot++) this.#writeRowInfo(slot, INACTIVE);
  }

  /** @throws SplitkvError `limit` when cache or activations don't fit the adapter. */
  static async create(
    device: Device,
    config: { readonly vocabSize: number; readonly maxPositions: number },
    createForward: (cache: CacheOptions) => Forward,
    options: RunnerOptions,
  ): Promise<Runner> {
    return device.checked('preparing the model', () => new Runner(device, config, createForward, options));
  }

  /** Bytes of the KV cache, and what one token takes of them. */
  get kv(): { readonly type: KvType; readonly bytes: number; readonly bytesPerToken: number } {
    return {
      type: this.options.kvType,
      bytes: this.#forward.cacheBytes,
      bytesPerToken: this.#forward.cacheBytesPerToken,
    };
  }

  #record(label: string, body: (recorder: Recorder) => void): Program {
    const recorder = new Recorder(this.device, label);
    body(recorder);
    return recorder.finish();
  }

  #recordSampling(draws: boolean): { decode: Program; head: Program; draws: boolean } {
    const { slots } = this.options;
    const { x, normed } = this.#generated;
    return {
      draws,
      decode: this.#record('decode', (recorder) => {
        this.#forward.recordLayers(recorder, this.#generated);
        this.#forward.recordHead(recorder, x, normed, slots, this.#sampler.logits);
        this.#sampler.record(recorder, draws);
      }),
      head: this.#record('head', (recorder) => {
        this.#forward.recordHead(recorder, this.#headX, normed, slots, this.#sampler.logits);
        this.#sampler.record(recorder, draws);
      }),
    };
  }

  get contextLength(): number {
    return this.options.contextLength;
  }

  /** Dispatches that one decode step replays, sampling included. */
  get dispatchesPerToken(): number {
    return this.#sampling.decode.dispatchCount;
  }

  /**
   * Computes the prompt into the cache and prepares the slot for sampling its first token.
   * @throws SplitkvError `usage` (empty prompt, id out of range), `context_full` (longer than the context), `aborted`.
   */
  async prefill(
    prompt: readonly number[],
    maxTokens: number,
    sampling: SamplingOptions & { readonly seed: number },
    signal?: AbortSignal,
    slot = 0,
  ): Promise<void> {
    this.checkPrompt(prompt);
    if ((sampling.temperature ?? 0) > 0 && !this.#sampling.draws) {
      const greedy = this.#sampling;
      this.#sampling = await this.device.checked('preparing sampling', () => this.#recordSampling(true));
      greedy.decode.dispose();
      greedy.head.dispose();
    }
    this.#admit(slot, Math.min(prompt.length + maxTokens, this.contextLength));
    let rows = 0;
    for (let start = 0; start < prompt.length; start += rows) {
      throwIfAborted(signal, 'prefill');
      rows = Math.min(this.#chunk, prompt.length - start);
      const encoder = this.#encodeChunk(prompt, start, rows, slot);
      if (start + rows === prompt.length) {
        const bytes = this.#forward.hiddenStride * 4;
        encoder.copyBufferToBuffer(this.#prompt.x.gpu, (rows - 1) * bytes, this.#headX.gpu, slot * bytes, bytes);
      }
      this.device.gpu.queue.submit([encoder.finish()]);
      // One chunk at a time on the queue, so that an abort or a lost device shows at once.
      await this.device.wait(this.device.gpu.queue.onSubmittedWorkDone());
    }
    this.#slots[slot]!.length = prompt.length;
    this.#writeRowInfo(slot, prompt.length - 1);
    this.#sampler.start(slot, sampling, prompt);
  }

  /** Samples the first token of every slot just prefilled; the ids of all slots. */
  sampleFirst(): Promise<Uint32Array> {
    const encoder = this.device.gpu.createCommandEncoder();
    return this.#replay(encoder, this.#sampling.head);
  }

  /** One decode step of every active slot: feeds the last sampled ids, writes their KV, samples the next. */
  step(): Promise<Uint32Array> {
    for (const slot of this.#slots) if (slot.blocks.length > 0) slot.length++;
    return this.#replay(this.device.gpu.createCommandEncoder(), this.#sampling.decode);
  }

  #replay(encoder: GPUCommandEncoder, program: Program): Promise<Uint32Array> {
    this.device.assertAlive();
    const longest = this.#slots.reduce((most, slot) => Math.max(most, slot.length), 1);
    const pass = encoder.beginComputePass();
    program.encode(pass, { rows: this.options.slots, chunks: chunksOf(longest) });
    pass.end();
    const { ids, offset } = this.#sampler.nextIds();
    const read = this.#ids.record(encoder, ids, offset);
    this.device.gpu.queue.submit([encoder.finish()]);
    return read();
  }

  /**
   * Logits of the prompt's positions, computed as prompt rows. `onRows` gets consecutive rows of logitsStride values.
   * @throws as `prefill`.
   */
  async logits(
    prompt: readonly number[],
    all: boolean,
    onRow: (position: number, logits: Float32Array) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    this.checkPrompt(prompt);
    this.#admit(0, prompt.length);
    const { device } = this;
    const { hiddenStride, logitsStride } = this.#forward;
    try {
      let rows = 0;
      for (let start = 0; start < prompt.length; start += rows) {
        throwIfAborted(signal, 'logits');
        rows = Math.min(this.#chunk, prompt.length - start);
        device.gpu.queue.submit([this.#encodeChunk(prompt, start, rows, 0).finish()]);
        const last = start + rows === prompt.length;
        for (let row = all ? 0 : last ? rows - 1 : rows; row < rows; row += LOGITS_ROWS) {
          const count = Math.min(LOGITS_ROWS, rows - row);
          const encoder = device.gpu.createCommandEncoder();
          encoder.copyBufferToBuffer(
            this.#prompt.x.gpu,
            row * hiddenStride * 4,
            this.#logitsX.gpu,
            0,
            count * hiddenStride * 4,
          );
          const pass = encoder.beginComputePass();
          this.#logits.encode(pass, { rows: count, chunks: 1 });
          pass.end();
          device.gpu.queue.submit([encoder.finish()]);
          const values = new Float32Array(await device.read(this.#logitsRows, 0, count * logitsStride * 4));
          for (let i = 0; i < count; i++) {
            onRow(start + row + i, values.slice(i * logitsStride, i * logitsStride + this.config.vocabSize));
          }
        }
        await device.wait(device.gpu.queue.onSubmittedWorkDone());
      }
    } finally {
      this.release(0);
    }
  }

  /** The logits that the slot's next token was or will be sampled from; for tests. */
  async slotLogits(slot: number): Promise<Float32Array> {
    const { logitsStride } = this.#forward;
    const bytes = await this.device.read(this.#sampler.logits, slot * logitsStride * 4, this.config.vocabSize * 4);
    return new Float32Array(bytes);
  }

  /** Frees a slot's blocks; its row is inactive from now on. */
  release(slot = 0): void {
    const state = this.#slots[slot]!;
    this.#blocks.release(state.blocks);
    state.blocks = [];
    state.length = 0;
    if (this.device.isLost) return;
    this.#writeRowInfo(slot, INACTIVE);
    this.#sampler.stop(slot);
  }

  checkPrompt(prompt: readonly number[]): void {
    const { vocabSize } = this.config;
    if (prompt.length === 0) throw usageError('the prompt is empty: give at least one token');
    for (const [index, id] of prompt.entries()) {
      if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
        throw usageError(
          `token ${index} of the prompt is ${id}; this model's ids are integers from 0 to ${vocabSize - 1}`,
        );
      }
    }
    if (prompt.length > this.contextLength) {
      throw new SplitkvError(
        'context_full',
        `the prompt has ${prompt.length} tokens; the context holds ${this.contextLength} ` +
          `(the model's maximum is ${this.config.maxPositions}): shorten the prompt or load with a longer context`,
      );
    }
  }

  #admit(slot: number, tokens: number): void {
    const state = this.#slots[slot]!;
    if (state.blocks.length > 0) throw new SplitkvError('internal', `slot ${slot} is in use`);
    state.blocks = this.#blocks.allocate(tokens);
    this.device.write(this.#blockTable, slot * this.#tableStride * 4, new Uint32Array(state.blocks));
  }

  /** The layers for prompt tokens [start, start + rows) of a slot, as one compute pass. */
  #encodeChunk(prompt: readonly number[], start: number, rows: number, slot: number): GPUCommandEncoder {
    const buffers = this.#prompt;
    const tokens = new Uint32Array(buffers.rows);
    const rowInfo = new Uint32Array(buffers.rows * 2).fill(INACTIVE);
    for (let row = 0; row < rows; row++) {
      tokens[row] = prompt[start + row]!;
      rowInfo[row * 2] = start + row;
      rowInfo[row * 2 + 1] = slot;
    }
    this.device.write(buffers.tokens, 0, tokens);
    this.device.write(buffers.rowInfo, 0, rowInfo);
    const encoder = this.device.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    this.#prefill.encode(pass, { rows: alignUp(rows, PREFILL_TILE_ROWS), chunks: chunksOf(start + rows) });
    pass.end();
    return encoder;
  }

  #writeRowInfo(slot: number, position: number): void {
    this.device.write(this.#generated.rowInfo, slot * 8, new Uint32Array([position, slot]));
  }
}
