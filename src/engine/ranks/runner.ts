/**
 * Room: steps on ranks. Runner gives every rank the same calls; RankRunner (rank_runner.ts) is one rank in this
 * process: its program, cache and sampling. rank.ts has what every rank can do. Read that next.
 */

import { SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import { capacity, isCompressed } from '../../model/compression/budgets.js';
import { endBeforeWindow } from '../../model/compression/window.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { modelShape } from '../../model/shape.js';
import { CHUNK_TOKENS, Owners, pipelineDepth, type Plan, type SharedSequence } from '../../placement/index.js';
import { type HandedKv, pieceFor } from '../prefill/handed_kv.js';
import type { CacheUse, DrawOptions, Rank, RankCounts, RunnerOptions } from './rank.js';
import { LOGITS_ROWS } from './rank_runner.js';
import { stepEnd } from '../cache/row_blocks.js';
import { shareOf, type SlotTokens } from './row_rounds.js';

export { MAX_STEPS_IN_FLIGHT } from './batch.js';
export type { RunnerOptions } from './rank.js';

interface Slot {
  active: boolean;
  chunkOffset: number;
  /** Tokens in the cache, or about to be by the steps submitted. */
  length: number;
  /** Of its prompt, which may have been compressed. */
  prompt: number;
  /** Tokens that the slot has room for. */
  room: number;
}

const freeSlot = (): Slot => ({ active: false, chunkOffset: 0, length: 0, prompt: 0, room: 0 });

/** Drives the ranks of a model: the same calls to each, in the same order. Holds no GPU object itself. */
export class Runner {
  /** Ranks that a sequence's chunks are split over. */
  readonly split: number;
  readonly owners: Owners;
  /** Prompt rows that a step may have. */
  readonly promptRows: number;
  readonly #slots: Slot[];
  readonly #rowBlocks: number;
  readonly #root: number;
  /** Ranks of which one holds a token: those that split a sequence, or that sequences are dealt out to. */
  readonly #holders: number;
  /** Prompt steps that may be on their way through the ranks at once. */
  readonly #prefillsInFlight: number;
  /** Sequences came or went since copies of heads shared them out. */
  #unbalanced = false;
  #copyMoves = 0;

  constructor(
    readonly ranks: readonly Rank[],
    readonly plan: Plan,
    readonly config: ModelConfig,
    readonly options: RunnerOptions,
  ) {
    const { slots, batches = 1 } = options;
    this.#slots = Array.from({ length: slots * batches }, () => freeSlot());
    this.owners = new Owners(plan, slots, batches);
    const { topology } = this.owners;
    this.#rowBlocks = topology.places ? 1 : topology.rowGroups.prompt;
    this.#root = topology.ranks[0]!.root;
    this.split = this.owners.split;
    const dealing = topology.stages.find(({ kind }) => kind === 'token');
    this.#holders = dealing ? dealing.places[0]!.flat().length : this.split * this.owners.ranges(0).length;
    this.promptRows = Math.min(...ranks.map(({ facts }) => facts.promptRows));
    this.#prefillsInFlight = pipelineDepth(plan);
  }

  /** Whether copies of heads share whole sequences, which `balanceCopies` shares out anew. */
  get sharesSequences(): boolean {
    return this.plan.sharing === 'sequences';
  }

  /** Pieces that went from one copy of a head to another since the runner was made. */
  get copyMoves(): number {
    return this.#copyMoves;
  }

  /** Entries that heads have on average of a sequence of `length` tokens, the first `prompt` of which are its prompt. */
  entriesOf(prompt: number, length: number): number {
    const { compression } = this.options;
    if (!compression || length < prompt || !isCompressed(compression, prompt)) return length;
    return length - prompt + capacity(compression, prompt);
  }

  /** Copies of heads share the sequences that there are out anew; all of them are listed. */
  async balanceCopies(sequences: readonly SharedSequence[]): Promise<void> {
    this.#copyMoves += await this.all((rank) => rank.balanceCopies(sequences));
  }

  /** Bytes of the KV cache on all ranks, and what one token takes of them. */
  get kv(): { readonly type: KvType; readonly bytes: number; readonly bytesPerToken: number } {
    const sum = (of: (rank: Rank) => number): number => this.ranks.reduce((total, rank) => total + of(rank), 0);
    return {
      type: this.options.kvType,
      bytes: sum(({ facts }) => facts.kvBytes),
      bytesPerToken: sum(({ facts }) => facts.kvBytesPerToken) / this.#holders,
    };
  }

  get contextLength(): number {
    return this.options.contextLength;
  }

  /** KV tokens that the next decode step of the active slots reads: [rank][layer of the model], added up over kv heads. */
  kvTokens(): Promise<number[][]> {
    const lengths = this.#slots.map(({ active, length }) => (active ? length + 1 : 0));
    return Promise.all(this.ranks.map((rank) => rank.kvTokens(lengths)));
  }

  /** Dispatches that one decode step replays on the busiest rank, sampling included. */
  get dispatchesPerToken(): number {
    return Math.max(...this.ranks.map(({ facts }) => facts.dispatchesPerStep));
  }

  /** Exchanges that one decode step takes part in, on the rank with most. */
  get exchangesPerToken(): number {
    return Math.max(...this.ranks.map(({ facts }) => facts.exchangesPerStep));
  }

  counts(): Promise<RankCounts[]> {
    return Promise.all(this.ranks.map((rank) => rank.counts()));
  }

  /** The same call to every rank; all have ended when this settles. Resolves with the root's answer. */
  async all<T>(call: (rank: Rank, index: number) => Promise<T>): Promise<T> {
    return (await this.#each(call))[this.#root]!;
  }

  /** The same call to every rank; all have ended when this settles. */
  async #each<T>(call: (rank: Rank, index: number) => Promise<T>): Promise<T[]> {
    const results = await Promise.allSettled(this.ranks.map((rank, index) => call(rank, index)));
    const reasons = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (reasons.length > 0) {
      // A rank that lost its device makes the others give up: its own error says why.
      throw reasons.find((reason) => reason instanceof SplitkvError && reason.code === 'device_lost') ?? reasons[0];
    }
    return results.map((result) => (result as PromiseFulfilledResult<T>).value);
  }

  /**
   * Runs pieces of prompts: one call for all ranks, with one piece at most for each rank that runs rows of its own. Resolves with how many
   * tokens blocks need no longer hold on any rank, of each slot whose prompt ended and was compressed.
   */
  async prefillRound(round: readonly (SlotTokens & { readonly last: boolean })[]): Promise<Map<number, number>> {
    const shares = this.ranks.map((_, index) => shareOf(this.owners, round, index));
    const answers = await this.#each((rank, index) => {
      const { item, rows } = shares[index]!;
      return item
        ? rank.prefill(item.slot, item.tokens, item.start, item.last, rows)
        : rank.prefill(0, new Uint32Array(), 0, false, rows);
    });
    const evicted = new Map<number, number>();
    for (const [index, { item }] of shares.entries()) {
      const here = answers[index];
      if (item && here !== undefined) evicted.set(item.slot, Math.min(here, evicted.get(item.slot) ?? Infinity));
    }
    return evicted;
  }

  /** As `prefillRound`, for tokens that were generated before. */
  async recomputeRound(round: readonly SlotTokens[]): Promise<void> {
    await this.all((rank, index) => {
      const { item, rows } = shareOf(this.owners, round, index);
      return item
        ? rank.recompute(item.slot, item.tokens, item.start, rows)
        : rank.recompute(0, new Uint32Array(), 0, rows);
    });
  }

  /**
   * Samples a token of each of a batch's active slots; ids by slot of the batch.
   * @param active the slots that take part, by number in the batch; default all
   */
  async sample(batch: number, decodes: boolean, longest: number, active?: readonly number[]): Promise<Uint32Array> {
    const { owners } = this;
    const { rowRanks } = owners;
    if (!rowRanks) {
      const rows = active && Math.max(...active) + 1;
      return (await this.all((rank) => rank.step(batch, decodes, longest, rows)))!;
    }
    const ranges = owners.ranges(batch);
    const rows = ranges.map(([first, end]) =>
      active
        ? Math.max(0, ...active.filter((slot) => slot >= first && slot < end).map((slot) => slot - first + 1))
        : end - first,
    );
    const answers = await this.#each((rank) => rank.step(batch, decodes, longest, rows));
    const ids = new Uint32Array(this.options.slots);
    for (const [place, rank] of rowRanks.entries()) {
      const [first, end] = ranges[place]!;
      ids.set(answers[rank]?.subarray(0, end - first) ?? [], first);
    }
    return ids;
  }

  /**
   * Computes the prompt into the cache and prepares the slot for sampling its first token.
   * @throws SplitkvError `usage` (empty prompt, id out of range), `context_full` (longer than the context), `aborted`.
   */
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

  /**
   * As `prefill`, with keys and values that a prefill worker computed of this very prompt.
   * @throws as `prefill`.
   */
  async takeOver(
    prompt: readonly number[],
    maxTokens: number,
    sampling: DrawOptions,
    kv: HandedKv,
    slot = 0,
  ): Promise<void> {
    this.checkPrompt(prompt);
    await this.#admit(slot, Math.min(prompt.length + maxTokens, this.contextLength));
    await Promise.all([
      this.handOver(slot, kv),
      this.all((rank) => rank.start(slot, sampling, Uint32Array.from(prompt))),
    ]);
    Object.assign(this.#slots[slot]!, { length: prompt.length, prompt: prompt.length });
  }

  /** Gives each rank its part of a handover, from block `firstBlock` on; the slot has its blocks already. */
  async handOver(slot: number, kv: HandedKv, firstBlock = 0): Promise<void> {
    const { plan, owners } = this;
    const shape = modelShape(this.config);
    await this.all((rank, index) =>
      rank.takeOver(slot, pieceFor(plan, index, kv, { ...shape, firstBlock, keeps: owners.keeps(index, slot) })),
    );
  }

  /**
   * Computes a prompt for other ranks. One rank with whole weights.
   * @throws as `prefill`.
   */
  async computeKv(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv> {
    this.checkPrompt(prompt);
    const [rank] = this.ranks;
    const { cacheBlockBytes } = rank!.facts;
    await this.#admit(0, prompt.length);
    try {
      await this.#runPrompt(0, Uint32Array.from(prompt), signal);
      const [bytes, lastRow] = await Promise.all([rank!.readKv(0), rank!.readLastRow(0)]);
      const blocks = bytes.byteLength / cacheBlockBytes.reduce((sum, size) => sum + size, 0);
      let at = 0;
      const buffers = cacheBlockBytes.map((size) => bytes.subarray(at, (at += size * blocks)));
      return { tokens: prompt.length, blocks, buffers, lastRow };
    } finally {
      await this.release(0);
    }
  }

  async #runPrompt(slot: number, tokens: Uint32Array, signal: AbortSignal | undefined): Promise<void> {
    const under: Promise<unknown>[] = [];
    try {
      for (let start = 0; start < tokens.length;) {
        throwIfAborted(signal, 'prefill');
        const end = this.#stepEnd(slot, start, tokens.length);
        const piece = tokens.slice(start, end);
        const step = this.prefillRound([{ slot, tokens: piece, start, last: end === tokens.length }]);
        step.catch(() => {});
        under.push(step);
        if (under.length >= this.#prefillsInFlight) await under.shift();
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
    const reached = stepEnd(this.#rowBlocks, this.#slots[slot]!.chunkOffset, start, end, this.promptRows);
    return compression && isCompressed(compression, end) ? endBeforeWindow(reached, end, compression.window) : reached;
  }

  /** What compression left of a slot's prompt, by rank. */
  cacheUse(slot = 0): Promise<CacheUse[]> {
    return Promise.all(this.ranks.map((rank) => rank.cacheUse(slot)));
  }

  /** Entries that each kv head keeps of a prompt, [layer][kv head]. @throws as `prefill` */
  async kept(prompt: readonly number[], signal?: AbortSignal): Promise<number[][]> {
    const { numLayers, kvHeads } = modelShape(this.config);
    const layers = Array.from({ length: numLayers }, () => new Array<number>(kvHeads).fill(prompt.length));
    try {
      await this.prefill(prompt, 1, { seed: 0 }, signal);
      for (const { kept } of await this.cacheUse()) {
        for (const { layer, head, entries } of kept) layers[layer]![head] = entries;
      }
      return layers;
    } finally {
      await this.release();
    }
  }

  /** Samples the first token of every slot of the batch that was just prefilled; the ids of all its slots. */
  async sampleFirst(batch = 0): Promise<Uint32Array> {
    return this.sample(batch, false, 1);
  }

  /** One decode step of a batch's active slots: feeds the last sampled ids, writes their KV, samples the next. */
  async step(batch = 0): Promise<Uint32Array> {
    const { slots } = this.options;
    const own = this.#slots.slice(batch * slots, (batch + 1) * slots);
    for (const slot of own) if (slot.active) slot.length++;
    const longest = own.reduce((most, slot) => Math.max(most, slot.length), 1);
    const balanced = this.#unbalanced ? this.#balance() : undefined;
    balanced?.catch(() => {}); // awaited below
    const ids = await this.sample(batch, true, longest);
    await balanced;
    return ids;
  }

  #balance(): Promise<void> {
    this.#unbalanced = false;
    return this.balanceCopies(
      this.#slots.flatMap(({ active, length, prompt, room }, slot): SharedSequence[] => {
        if (!active) return [];
        // A prompt that isn't whole yet stays where it is.
        if (prompt === 0) return [{ slot, length, entries: this.entriesOf(room, room), remaining: 0 }];
        return [{ slot, length, entries: this.entriesOf(prompt, length), remaining: Math.max(0, room - length) }];
      }),
    );
  }

  /**
   * Logits of positions, in order, to `onRow`. The first `promptLength` tokens (default: all) are the prompt, and computed as prompt rows;
   * those behind it one by one, as rows of tokens that were generated.
   * @throws as `prefill`.
   */
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
      await this.#promptLogits(
        Uint32Array.from(text.slice(0, promptLength)),
        all,
        promptLength === text.length,
        onRow,
        signal,
      );
      for (let position = promptLength; position < text.length; position++) {
        throwIfAborted(signal, 'logits');
        const token = text[position]!;
        await this.all((rank) => rank.resume(0, { seed: 0 }, Uint32Array.of(token), token, position));
        await this.step(0);
        if (all || position === text.length - 1) onRow(position, await this.slotLogits(0));
      }
    } finally {
      await this.release(0);
    }
  }

  async #promptLogits(
    tokens: Uint32Array,
    all: boolean,
    isWhole: boolean,
    onRow: (position: number, logits: Float32Array) => void,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { vocabSize } = this.config;
    const owner = this.#ownerOf(0);
    for (let start = 0; start < tokens.length;) {
      throwIfAborted(signal, 'logits');
      const end = this.#stepEnd(0, start, tokens.length);
      const last = !isWhole && end === tokens.length;
      await this.prefillRound([{ slot: 0, tokens: tokens.slice(start, end), start, last }]);
      const first = all ? start : isWhole && end === tokens.length ? end - 1 : end;
      for (let at = first; at < end;) {
        // A run may not cross a chunk, whose rows may be another rank's.
        const chunkEnd = (Math.floor(at / CHUNK_TOKENS) + 1) * CHUNK_TOKENS;
        const run = { start: at, count: Math.min(LOGITS_ROWS, end - at, chunkEnd - at) };
        const rows = (await (owner ? owner.logits(run) : this.all((rank) => rank.logits(run))))!;
        for (let i = 0; i < run.count; i++) {
          onRow(at + i, rows.slice(i * vocabSize, (i + 1) * vocabSize));
        }
        at += run.count;
      }
      start = end;
    }
    Object.assign(this.#slots[0]!, { length: tokens.length, prompt: tokens.length });
  }

  /** The logits that the slot's next token was or will be sampled from; for tests. */
  async slotLogits(slot: number): Promise<Float32Array> {
    const owner = this.#ownerOf(slot);
    if (owner) return (await owner.slotLogits(slot))!;
    const slices = await Promise.all(this.plan.head.map(({ rank }) => this.ranks[rank]!.slotLogits(slot)));
    const logits = new Float32Array(this.config.vocabSize);
    for (const [index, { rows }] of this.plan.head.entries()) logits.set(slices[index]!, rows[0]);
    return logits;
  }

  /** Frees a slot's blocks; its row is inactive from now on. Ranks that are broken keep theirs until they are reset. */
  async release(slot = 0): Promise<void> {
    const state = this.#slots[slot]!;
    if (!state.active) return;
    this.#slots[slot] = freeSlot();
    this.#unbalanced = this.sharesSequences;
    await Promise.allSettled(this.ranks.map((rank) => rank.release(slot)));
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

  /** The one rank that runs the slot's rows, where each runs its own. */
  #ownerOf(slot: number): Rank | undefined {
    const { owners } = this;
    return owners.rowRanks && this.ranks[owners.rowRanks[owners.placeOf(slot)]!];
  }

  async #admit(slot: number, tokens: number): Promise<void> {
    const state = this.#slots[slot]!;
    if (state.active) throw new SplitkvError('internal', `slot ${slot} is in use`);
    const rooms = this.#slots
      .filter(({ active }) => active)
      .map((own) => ({ tokens: own.room, offset: own.chunkOffset }));
    const chunkOffset = this.owners.nextOffset(rooms, tokens);
    this.#slots[slot] = { active: true, chunkOffset, length: 0, prompt: 0, room: tokens };
    await this.all((rank) => rank.admit(slot, tokens, chunkOffset));
  }
}
