import { SplitkvError, throwIfAborted } from '../../base/errors.js';
import { CHUNK_TOKENS, KV_BLOCK, MERGE_LANES } from '../../base/kv_units.js';
import { isCompressed } from '../../model/compression/budgets.js';
import {
  chunkOwner,
  leastLoadedOffset,
  MAX_STEPS_IN_FLIGHT,
  pipelineDepth,
  type SharedSequence,
  windowBlocks,
} from '../../placement/index.js';
import { hasHeadTables } from '../cache/slot_tables.js';
import type { HandedKv } from '../contracts/prefill_worker.js';
import { type DrawOptions, LOGITS_ROWS } from '../contracts/rank.js';
import { Runner } from '../ranks/runner.js';
import { evenLanes, Pool, type Windowed, WindowBlocks } from '../scheduler/block_pool.js';
import { laneOf } from '../scheduler/config.js';

interface Slot {
  active: boolean;
  chunkOffset: number;
  place: number;
  blocks: readonly number[];
  /** In layers with windows. */
  windowed: Windowed;
  /** Tokens in the cache, or about to be by the steps submitted. */
  length: number;
  /** Of its prompt, which may have been compressed. */
  prompt: number;
  /** Tokens that the slot has room for. */
  room: number;
  /** Where its next decode step feeds a token; undefined: that step samples from its prompt. */
  next: number | undefined;
}

const windowedOf = (offset: number, most: number): Windowed => ({
  windows: { first: 0, blocks: [] },
  windowsFrom: 0,
  offset,
  most,
  computed: 0,
  confirmed: 0,
});
const freeSlot = (): Slot => ({
  active: false,
  chunkOffset: 0,
  place: 0,
  blocks: [],
  windowed: windowedOf(0, 0),
  length: 0,
  prompt: 0,
  room: 0,
  next: undefined,
});
const SIZES = { blockTokens: KV_BLOCK, chunkTokens: CHUNK_TOKENS };

/**
 * Drives ranks step by step, without the engine: each call does one thing at one slot. For tests of kernels, plans and ranks, and for
 * benches that time single steps. Slots have their blocks for as long as they are taken.
 */
export class SlotDriver extends Runner {
  readonly #slots: Slot[];
  readonly #pools: readonly Pool[];
  /** Of layers with windows, where those have blocks of their own. */
  readonly #windows: readonly WindowBlocks[];
  /** Sequences came or went since copies of heads shared them out. */
  #unbalanced = false;
  /** By batch: what the last step of each samples. */
  readonly #sampled: Promise<Uint32Array>[] = [];

  /** Over the ranks that another runner, of a model that is open, has. */
  constructor({ ranks, plan, config, options }: Runner) {
    super(ranks, plan, config, options);
    const { slots, batches = 1 } = options;
    this.#slots = Array.from({ length: slots * batches }, () => freeSlot());
    const { lanes, window } = this.caches;
    this.#windows = this.owners.ranges(0).flatMap((_, place) => {
      const numBlocks = this.caches.poolBlocks(place, 'window');
      const limits = window && { ...window, numBlocks, most: windowBlocks(window, lanes) };
      return limits ? [new WindowBlocks(limits, lanes, SIZES)] : [];
    });
    this.#pools = this.owners.ranges(0).map((_, place) => new Pool(evenLanes(this.caches.poolBlocks(place), lanes)));
  }

  /** KV tokens that the next decode step of the active slots reads: [rank][layer of the model], added up over kv heads. */
  override kvTokens(
    lengths: readonly number[] = this.#slots.map(({ active, length }) => (active ? length + 1 : 0)),
  ): Promise<number[][]> {
    return super.kvTokens(lengths);
  }

  /** Computes the prompt into the cache and prepares the slot for sampling its first token. @throws as `checkPrompt` */
  async prefill(
    prompt: readonly number[],
    maxTokens: number,
    sampling: DrawOptions,
    signal?: AbortSignal,
    slot = 0,
  ): Promise<void> {
    this.checkPrompt(prompt);
    await this.#admit(slot, Math.min(prompt.length + maxTokens, this.contextLength));
    const tokens = Uint32Array.from(prompt);
    await this.#runPrompt(slot, tokens, signal);
    await this.all((rank) => rank.start(slot, sampling, tokens));
  }

  /** As `prefill`, with keys and values that a prefill worker computed of this very prompt. */
  async takeOver(
    prompt: readonly number[],
    maxTokens: number,
    sampling: DrawOptions,
    kv: HandedKv,
    slot = 0,
  ): Promise<void> {
    this.checkPrompt(prompt);
    await this.#admit(slot, Math.min(prompt.length + maxTokens, this.contextLength));
    await this.#advance(slot, prompt.length, prompt.length);
    await Promise.all([
      this.handOver(slot, kv),
      this.all((rank) => rank.start(slot, sampling, Uint32Array.from(prompt))),
    ]);
    Object.assign(this.#slots[slot]!, { length: prompt.length, prompt: prompt.length });
  }

  /** Samples the first token of every slot of the batch that was just prefilled; the ids of all its slots. */
  async sampleFirst(batch = 0): Promise<Uint32Array> {
    const { slots } = this.options;
    for (const slot of this.#slots.slice(batch * slots, (batch + 1) * slots)) slot.next ??= slot.prompt;
    return (this.#sampled[batch] = this.sample(batch, false, 1));
  }

  /** One decode step of a batch's active slots: feeds the last sampled ids, writes their KV, samples the next. */
  async step(batch = 0): Promise<Uint32Array> {
    const { slots } = this.options;
    const own = this.#slots.slice(batch * slots, (batch + 1) * slots);
    const known = this.isStepwise ? await this.#sampled[batch] : undefined;
    for (const slot of own) if (slot.active) slot.length++;
    for (const [at, slot] of own.entries()) {
      const { active, length, next, prompt } = slot;
      if (!active) continue;
      if (this.#windows.length > 0)
        await this.#advance(batch * slots + at, Math.max(0, length - MAX_STEPS_IN_FLIGHT), length);
      if (known && next !== undefined)
        await this.all((rank) => rank.goOn(batch * slots + at, known[at]!, next, undefined));
      slot.next = next === undefined ? prompt : next + 1;
    }
    const longest = own.reduce((most, slot) => Math.max(most, slot.length), 1);
    const balanced = this.#unbalanced ? this.#balance() : undefined;
    balanced?.catch(() => {}); // awaited below
    const ids = (this.#sampled[batch] = this.sample(batch, true, longest));
    await ids.then(() => balanced);
    return ids;
  }

  /** Logits of a prompt's positions, in order, to `onRow`: of all of them, or of the last. */
  async logits(
    text: readonly number[],
    all: boolean,
    onRow: (position: number, logits: Float32Array) => void,
    signal?: AbortSignal,
    promptLength = text.length,
  ): Promise<void> {
    this.checkPrompt(text);
    await this.#admit(0, text.length);
    try {
      const isWhole = promptLength === text.length;
      await this.#promptLogits(Uint32Array.from(text.slice(0, promptLength)), all, isWhole, onRow, signal);
      for (let position = promptLength; position < text.length; position++) {
        throwIfAborted(signal, 'logits');
        const token = text[position]!;
        this.#slots[0]!.next = position;
        this.#sampled[0] = Promise.resolve(Uint32Array.of(token));
        await this.all((rank) => rank.resume(0, { seed: 0 }, Uint32Array.of(token), token, position));
        await this.step(0);
        if (all || position === text.length - 1) onRow(position, await this.slotLogits(0));
      }
    } finally {
      await this.release(0);
    }
  }

  /** Frees a slot's blocks; its row is inactive from now on. Ranks that are broken keep theirs until they are reset. */
  async release(slot = 0): Promise<void> {
    const { active, blocks, windowed, place } = this.#slots[slot]!;
    if (!active) return;
    this.#windows[place]?.release(windowed);
    this.#slots[slot] = freeSlot();
    this.#pools[place]!.release(blocks);
    this.#unbalanced = this.sharesSequences;
    await Promise.allSettled(this.ranks.map((rank) => rank.release(slot)));
  }

  async #admit(slot: number, tokens: number): Promise<void> {
    if (this.#slots[slot]!.active) throw new SplitkvError('internal', `slot ${slot} is in use`);
    const rooms = this.#slots
      .filter(({ active }) => active)
      .map((own) => ({ tokens: own.room, offset: own.chunkOffset }));
    const chunkOffset = this.#nextOffset(rooms, tokens);
    const place = this.owners.placeOf(slot);
    const { lanes } = this.caches;
    const blocks = Array.from({ length: Math.ceil(tokens / KV_BLOCK) }, (_, at) =>
      this.#pools[place]!.allocate(laneOf(at, chunkOffset, lanes, SIZES)),
    );
    const windowed = windowedOf(chunkOffset, tokens);
    this.#slots[slot] = {
      active: true,
      chunkOffset,
      place,
      blocks,
      windowed,
      length: 0,
      prompt: 0,
      room: tokens,
      next: undefined,
    };
    if (this.#windows[place]?.fits(windowed) === false)
      throw new SplitkvError('internal', 'no room for another window');
    this.#windows[place]?.admit(windowed, windowed.windows);
    const byHead = hasHeadTables(this.plan, this.options);
    await this.all((rank) =>
      byHead ? rank.reserve(slot, tokens, chunkOffset) : rank.setBlocks(slot, blocks, chunkOffset),
    );
  }

  /** Before rows from `from` on, up to `end`: their windows, and room for what they write. */
  async #advance(slot: number, from: number, end: number): Promise<void> {
    const { place, windowed, blocks, chunkOffset } = this.#slots[slot]!;
    windowed.confirmed = from;
    if (!this.#windows[place]?.advance(windowed, end)) return;
    const { windows } = windowed;
    await this.all((rank) => rank.setBlocks(slot, blocks, chunkOffset, windows));
  }

  /** So that ranks that split sequences hold as many chunks as each other. */
  #nextOffset(rooms: readonly { readonly tokens: number; readonly offset: number }[], tokens: number): number {
    const split = this.plan.sharing === 'lanes' ? MERGE_LANES : this.owners.split;
    const chunks = Array.from({ length: split }, () => 0);
    for (const { tokens: room, offset } of rooms) {
      for (let chunk = 0; chunk * CHUNK_TOKENS < room; chunk++) chunks[chunkOwner(chunk, split, offset)]! += 1;
    }
    return leastLoadedOffset(chunks, Math.ceil(tokens / CHUNK_TOKENS));
  }

  async #runPrompt(slot: number, tokens: Uint32Array, signal: AbortSignal | undefined): Promise<void> {
    const under: Promise<unknown>[] = [];
    const starts: number[] = [];
    try {
      for (let start = 0; start < tokens.length;) {
        throwIfAborted(signal, 'prefill');
        const end = this.#stepEnd(slot, start, tokens.length);
        starts.push(start);
        await this.#advance(slot, starts[0]!, end);
        const piece = tokens.slice(start, end);
        const step = this.prefillRound([{ slot, tokens: piece, start, last: end === tokens.length }]);
        step.catch(() => {});
        under.push(step);
        if (under.length >= pipelineDepth(this.plan)) await under.shift();
        if (starts.length > under.length) starts.shift();
        start = end;
      }
    } finally {
      // Errors included: nothing may be under way when the slot is freed.
      for (const step of under) await step;
    }
    Object.assign(this.#slots[slot]!, { length: tokens.length, prompt: tokens.length });
    this.#unbalanced = this.sharesSequences;
  }

  #stepEnd(slot: number, start: number, end: number): number {
    const { compression } = this.options;
    const reached = this.chunkEnd(this.#slots[slot]!.chunkOffset, start, end);
    // The step that ends a prompt has its whole window: steps before it stop short of that.
    if (!compression || reached === end || !isCompressed(compression, end)) return reached;
    return Math.min(reached, Math.max(end - compression.window, 0));
  }

  async #promptLogits(
    tokens: Uint32Array,
    all: boolean,
    isWhole: boolean,
    onRow: (position: number, logits: Float32Array) => void,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { vocabSize } = this.config;
    for (let start = 0; start < tokens.length;) {
      throwIfAborted(signal, 'logits');
      const end = this.#stepEnd(0, start, tokens.length);
      const last = !isWhole && end === tokens.length;
      await this.#advance(0, start, end);
      await this.prefillRound([{ slot: 0, tokens: tokens.slice(start, end), start, last }]);
      const first = all ? start : isWhole && end === tokens.length ? end - 1 : end;
      for (let at = first; at < end;) {
        const chunkEnd = (Math.floor(at / CHUNK_TOKENS) + 1) * CHUNK_TOKENS;
        const run = { start: at, count: Math.min(LOGITS_ROWS, end - at, chunkEnd - at) };
        const rows = await this.rowsOf(0, 'logits', run);
        for (let i = 0; i < run.count; i++) onRow(at + i, rows.slice(i * vocabSize, (i + 1) * vocabSize));
        at += run.count;
      }
      start = end;
    }
    Object.assign(this.#slots[0]!, { length: tokens.length, prompt: tokens.length });
  }

  #balance(): Promise<void> {
    this.#unbalanced = false;
    return this.balanceCopies(
      this.#slots.flatMap(({ active, length, prompt, room }, slot): SharedSequence[] => {
        if (!active) return [];
        // A prompt that isn't whole yet stays where it is.
        if (prompt === 0) return [{ slot, length, ...this.entriesOf(slot, room, room), remaining: 0 }];
        return [{ slot, length, ...this.entriesOf(slot, prompt, length), remaining: Math.max(0, room - length) }];
      }),
    );
  }
}
