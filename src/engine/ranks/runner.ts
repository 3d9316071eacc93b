/**
 * Room: steps on ranks. Runner gives every rank the same calls; RankRunner (rank_runner.ts) is one rank in this
 * process: its program, cache and sampling. contracts/rank.ts has what every rank can do. Read that next.
 */
import { GIVEN_ID, SEGMENT_SHIFT } from '../../base/kv_units.js';
import { nth, sum } from '../../base/lists.js';
import { contextFullError, SplitkvError, usageError } from '../../base/errors.js';
import { capacity, isCompressed } from '../../model/compression/budgets.js';
import { attendsBothWays, type ModelConfig, takesRows } from '../../model/config/model_config.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { modelShape } from '../../model/shape.js';
import { type CachePools, Owners, type Plan, type SharedSequence } from '../../placement/index.js';
import { cachePools, hasHeadTables } from '../cache/slot_tables.js';
import { stepEnd } from '../cache/row_blocks.js';
import { pieceFor } from '../cache/cache_blocks.js';
import { type KvBlock, KvLayout } from '../cache/kv_layout.js';
import type { CachedBlock } from '../scheduler/prefix_cache.js';
import type { HandedKv } from '../contracts/prefill_worker.js';
import type {
  CacheUse,
  LogitsRun,
  Rank,
  RankCounts,
  RunnerOptions,
  SlotTokens,
  VerifiedRun,
} from '../contracts/rank.js';

export { MAX_STEPS_IN_FLIGHT } from '../../placement/index.js';
export type { RunnerOptions } from '../contracts/rank.js';

/**
 * The ranks of a model as one: the same calls to each, in the same order. Holds no GPU object itself, and knows nothing of sequences but
 * the slots that they are in.
 */
export class Runner {
  readonly owners: Owners;
  /** Whose blocks sequences take. */
  readonly caches: CachePools;
  /** Prompt rows that a step may have on a rank. */
  readonly promptRows: number;
  /** Whether a token must be known here before its step (`RankFacts.readsRows`). */
  readonly isStepwise: boolean;
  readonly #root: number;
  /** Ranks of which one holds a token: those that split a sequence, or that sequences are dealt out to. */
  readonly #holders: number;
  /** Pieces that went from one copy of a head to another since the runner was made. */
  copyMoves = 0;
  /** Where copies share sequences: what each head kept of a slot's compressed prompt, on average in each stage's layers, [stage][kv head]. */
  readonly #kept = new Map<number, readonly (readonly number[])[]>();
  #layout: KvLayout | undefined;
  #preparing: Promise<void> | undefined;
  #isReady = false;

  constructor(
    readonly ranks: readonly Rank[],
    readonly plan: Plan,
    readonly config: ModelConfig,
    readonly options: RunnerOptions,
  ) {
    const { slots, batches = 1 } = options;
    this.owners = new Owners(plan, slots, batches);
    this.caches = cachePools(this.owners, config, options);
    const { topology } = this.owners;
    this.#root = nth(topology.ranks, 0).root;
    const dealing = topology.stages.find(({ kind }) => kind === 'token');
    this.#holders = dealing ? nth(dealing.places, 0).flat().length : this.owners.split * this.owners.ranges(0).length;
    this.promptRows = Math.min(...ranks.map(({ facts }) => facts.promptRows));
    this.isStepwise = ranks.some(({ facts }) => facts.readsRows);
  }

  /** Of a prompt, that a step may have: some ranks run rows of their own. */
  get promptTokens(): number {
    return this.promptRows * this.owners.topology.rowPieces.prompt;
  }

  /** The end of a step that begins at `start` of a sequence: no rank gets more rows than there is room for. */
  chunkEnd(offset: number, start: number, end: number): number {
    return stepEnd(this.owners.topology.rowPieces.prompt, offset, start, end, this.promptRows);
  }

  /** Whether copies of heads share whole sequences, which `balanceCopies` shares out anew. */
  get sharesSequences(): boolean {
    return this.plan.sharing === 'sequences';
  }

  /** Entries that heads have of a slot's sequence of `length` tokens, the first `prompt` of which are its prompt. */
  entriesOf(slot: number, prompt: number, length: number): Pick<SharedSequence, 'entries' | 'heads'> {
    const { compression } = this.options;
    if (!compression || length < prompt || !isCompressed(compression, prompt)) return { entries: length };
    const behind = length - prompt;
    const heads = this.#kept.get(slot)?.map((stage) => stage.map((kept) => kept + behind));
    return { entries: behind + capacity(compression, prompt), ...(heads && { heads }) };
  }

  /** What copies that share sequences must know of a prompt that has ended. */
  async #learnKept(slot: number): Promise<void> {
    const { compression } = this.options;
    if (!compression || !this.sharesSequences) return;
    const kept = (await this.cacheUse(slot)).flatMap((use) => use.kept);
    const stages = this.plan.stages.map(({ layers: [first, end] }) => {
      const means: number[] = [];
      for (const { layer, head, entries } of kept) {
        if (layer >= first && layer < end) means[head] = (means[head] ?? 0) + entries / (end - first);
      }
      return means;
    });
    if (kept.length > 0) this.#kept.set(slot, stages);
    else this.#kept.delete(slot);
  }

  /** Copies of heads share the sequences that there are out anew; all of them are listed. */
  async balanceCopies(sequences: readonly SharedSequence[]): Promise<void> {
    this.copyMoves += await this.all((rank) => rank.balanceCopies(sequences));
  }

  /** Bytes of the KV cache on all ranks, and what one token takes of them. */
  get kv(): { readonly type: KvType; readonly bytes: number; readonly bytesPerToken: number } {
    return {
      type: this.options.kvType,
      bytes: sum(this.ranks.map(({ facts }) => facts.kvBytes)),
      bytesPerToken: sum(this.ranks.map(({ facts }) => facts.kvBytesPerToken)) / this.#holders,
    };
  }

  get contextLength(): number {
    return this.options.contextLength;
  }

  /**
   * KV tokens that a decode step reads: [rank][layer of the model], added up over kv heads.
   * @param lengths tokens that the sequence in each slot attends to then; 0 without one
   */
  kvTokens(lengths: readonly number[]): Promise<number[][]> {
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

  /** Times attention of so many of the next decode steps on every rank, for `counts`. Resolves with whether all can. */
  async timeAttention(steps: number): Promise<boolean> {
    return (await this.each((rank) => rank.timeAttention(steps))).every((can) => can);
  }

  /** The same call to every rank; all have ended when this settles. Resolves with the root's answer. */
  async all<T>(call: (rank: Rank, index: number) => Promise<T>): Promise<T> {
    return (await this.each(call))[this.#root]!;
  }

  /** The same call to every rank (of `ranks`); all have ended when this settles. */
  async each<T>(call: (rank: Rank, index: number) => Promise<T>, ranks = this.ranks): Promise<T[]> {
    const results = await Promise.allSettled(ranks.map((rank, index) => call(rank, index)));
    const reasons = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (reasons.length > 0) {
      // A rank that lost its device makes the others give up: its own error says why.
      throw reasons.find((reason) => reason instanceof SplitkvError && reason.code === 'device_lost') ?? reasons[0];
    }
    return results.map((result) => (result as PromiseFulfilledResult<T>).value);
  }

  /**
   * Runs pieces of prompts: one call for all ranks, with one piece at most for each place that runs rows of its own. Resolves with how many
   * tokens blocks need no longer hold on any rank, of each slot whose prompt ended and was compressed.
   */
  async prefillRound(round: readonly SlotTokens[]): Promise<Map<number, number>> {
    const shares = this.ranks.map((_, index) => shareOf(this.owners, round, index));
    const slots = round.map(({ slot }) => slot);
    for (const { slot, start } of round) if (start === 0) this.#kept.delete(slot);
    const answers = await this.each((rank, index) => rank.prefill(...nth(shares, index), slots));
    const evicted = new Map<number, number>();
    for (const [index, [{ slot }]] of shares.entries()) {
      const here = answers[index];
      if (here !== undefined) evicted.set(slot, Math.min(here, evicted.get(slot) ?? Infinity));
    }
    for (const { slot, last } of round) if (last) await this.#learnKept(slot);
    return evicted;
  }

  /** As `prefillRound`, for tokens that were generated before. */
  async recomputeRound(round: readonly SlotTokens[]): Promise<void> {
    const slots = round.map(({ slot }) => slot);
    await this.all((rank, index) => rank.recompute(...shareOf(this.owners, round, index), slots));
  }

  /** Whether drafts can be verified at once. The ranks begin to prepare for it when this is first asked; where one can't, they never are. */
  readyToVerify(): boolean {
    this.#preparing ??= this.each((rank) => rank.prepareVerifying()).then(
      () => void (this.#isReady = true),
      () => {},
    );
    return this.#isReady || this.options.speculates === 'now';
  }

  /** Until nothing is prepared beside calls, as no device may be destroyed meanwhile. */
  async settled(): Promise<void> {
    await this.#preparing;
  }

  /** Samples a token behind each token of some runs (`Rank.verify`). Of each: its first row among those of its place, and the tokens. */
  async verify(runs: readonly VerifiedRun[]): Promise<{ readonly row: number; readonly ids: Uint32Array }[]> {
    const { owners } = this;
    const { rowRanks } = owners;
    const inOrder = runs.toSorted((a, b) => owners.placeOf(a.slot) - owners.placeOf(b.slot));
    const answers = await this.each((rank) => rank.verify(inOrder));
    const rows = this.ranks.map(() => 0);
    const found = inOrder.map(({ slot, tokens }) => {
      const root = rowRanks ? nth(nth(rowRanks, owners.placeOf(slot)), 0) : this.#root;
      const row = nth(rows, root);
      rows[root] = row + tokens.length;
      return { slot, row, ids: nth(answers, root).subarray(row, row + tokens.length) };
    });
    return runs.map((run) => found.find(({ slot }) => slot === run.slot)!);
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
    const answers = await this.each((rank) => rank.step(batch, decodes, longest, rows));
    const ids = new Uint32Array(this.options.slots);
    for (const [place, [root = -1]] of rowRanks.entries()) {
      const [first, end] = nth(ranges, place);
      ids.set(answers[root]?.subarray(0, end - first) ?? [], first);
    }
    return ids;
  }

  /**
   * Gives each rank its part of a handover, from block `firstBlock` on; the slot has its blocks already. Resolves with how many tokens
   * blocks need no longer hold on any rank, where the prompt was compressed.
   */
  async handOver(slot: number, kv: HandedKv, firstBlock = 0): Promise<number | undefined> {
    const { plan, owners, options } = this;
    const cut = { ...modelShape(this.config), firstBlock, byHead: hasHeadTables(plan, options) };
    const answers = await this.each((rank, index) => {
      const piece = pieceFor(plan, index, kv, { ...cut, keeps: owners.keeps(index, slot) });
      const states = kv.state && owners.runs(index, slot) ? this.layout.statesOf(index, kv.state) : undefined;
      return rank.takeOver(slot, { ...piece, ...(states && { states }) });
    });
    await this.#learnKept(slot);
    const evicted = answers.filter((answer) => answer !== undefined);
    return evicted.length > 0 ? Math.min(...evicted) : undefined;
  }

  /** How blocks lie on the ranks, where heads have none of their own. */
  get layout(): KvLayout {
    const facts = this.ranks.map((rank) => rank.facts);
    return (this.#layout ??= new KvLayout(this.owners, this.caches, this.config, facts));
  }

  /** What the pools that a slot is of have in these places. */
  async readBlocks(slot: number, placed: readonly CachedBlock[]): Promise<KvBlock[]> {
    const places = KvLayout.places(placed);
    return this.layout.join(slot, placed, await this.each((rank) => rank.readPlaces(slot, places)));
  }

  /** What compression left of a slot's prompt, by rank. */
  cacheUse(slot: number): Promise<CacheUse[]> {
    return Promise.all(this.ranks.map((rank) => rank.cacheUse(slot)));
  }

  /**
   * Of positions that a slot's last rows were of, which one rank at least has: logits [count][vocabSize], or of one chunk the final hidden
   * states, before the last norm, f32 [count][stride].
   */
  async rowsOf(slot: number, what: 'logits' | 'states', { start, count }: LogitsRun): Promise<Float32Array> {
    const answers = await this.each((rank) => rank[what]({ slot, start, count }), this.#runnersOf(slot));
    return answers.find((answer) => answer !== undefined)!;
  }

  /** Final hidden states of the row of a slot's last step, or of the first `rows` of its verification, as `rowsOf`. */
  async slotStates(slot: number, rows?: number): Promise<Float32Array | undefined> {
    const answers = await this.each((rank) => rank.slotStates(slot, rows), this.#runnersOf(slot));
    return answers.find((answer) => answer !== undefined);
  }

  /** Weights of the norm before the head, f32 [hiddenSize]; undefined where there is none. */
  async finalNorm(): Promise<Float32Array | undefined> {
    return (await this.each((rank) => rank.finalNorm())).find((norm) => norm !== undefined);
  }

  /** The logits that the slot's last token was sampled from, or that of a row of its last verification. */
  async slotLogits(slot: number, row?: number): Promise<Float32Array> {
    const runners = this.#runnersOf(slot);
    const shares = this.plan.head.filter(({ rank }) => runners.includes(nth(this.ranks, rank)));
    const slices = await Promise.all(shares.map(({ rank }) => nth(this.ranks, rank).slotLogits(slot, row)));
    const logits = new Float32Array(this.config.vocabSize);
    for (const [index, { rows }] of shares.entries()) logits.set(slices[index]!, rows[0]);
    return logits;
  }

  checkPrompt(prompt: readonly number[]): void {
    const { vocabSize, inputs } = this.config;
    const takesGiven = takesRows(this.config);
    const types = inputs?.types ?? 1;
    if (prompt.length === 0) throw usageError('the prompt is empty: give at least one token');
    for (const [index, id] of prompt.entries()) {
      // The engine says which pictures there are.
      if (takesGiven && id >= GIVEN_ID && id < 2 ** 32) continue;
      const known = Number.isInteger(id) && id >= 0 && id < types * 2 ** SEGMENT_SHIFT;
      if (!known || id % 2 ** SEGMENT_SHIFT >= vocabSize) {
        throw usageError(
          `token ${index} of the prompt is ${id}; this model's ids are integers from 0 to ${vocabSize - 1}`,
        );
      }
    }
    if (attendsBothWays(this.config) && prompt.length > this.promptRows) {
      throw new SplitkvError(
        'context_full',
        `the text has ${prompt.length} tokens; this model computes texts whole, of at most ${this.promptRows} tokens here ` +
          `(the model's maximum is ${this.config.maxPositions}): cut it, or load with a longer context`,
        { details: { tokens: prompt.length, most: this.promptRows } },
      );
    }
    if (prompt.length > this.contextLength) {
      throw contextFullError(prompt.length, this.contextLength);
    }
  }

  /** The ranks that run the slot's rows: of its place, where places run their own, otherwise all. */
  #runnersOf(slot: number): readonly Rank[] {
    const { rowRanks } = this.owners;
    return rowRanks ? nth(rowRanks, this.owners.placeOf(slot)).map((rank) => nth(this.ranks, rank)) : this.ranks;
  }
}

/** The items by call, each call with one at most for each place: side by side where places run their own rows, otherwise one by one. */
export function roundsOf<Item extends SlotTokens>(owners: Owners, items: readonly Item[]): Item[][] {
  const { rowRanks } = owners;
  if (!rowRanks) return items.map((item) => [item]);
  const rounds: Item[][] = [];
  const taken = rowRanks.map(() => 0);
  for (const item of items) {
    const place = owners.placeOf(item.slot);
    (rounds[taken[place]!++] ??= []).push(item);
  }
  return rounds;
}

/** What a rank runs of a round, as plain data, and how many rows each place has there; a rank that has none is given no tokens. */
function shareOf(
  owners: Owners,
  round: readonly SlotTokens[],
  rank: number,
): [run: SlotTokens, rows: readonly number[] | undefined] {
  const { rowRanks } = owners;
  const own = rowRanks ? round.find(({ slot }) => nth(rowRanks, owners.placeOf(slot)).includes(rank)) : round[0];
  const { slot, tokens, start, last, given, runEnd }: SlotTokens = own ?? {
    slot: 0,
    tokens: new Uint32Array(),
    start: 0,
    last: false,
  };
  const rows = rowRanks?.map(
    (_, place) => round.find((item) => owners.placeOf(item.slot) === place)?.tokens.length ?? 0,
  );
  return [{ slot, tokens, start, last, given, runEnd }, rows];
}
