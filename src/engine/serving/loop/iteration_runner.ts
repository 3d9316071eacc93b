import { type SharedSequence } from '../../../placement/index.js';
import type { HandedKv } from '../../contracts/prefill_worker.js';
import {
  type DrawOptions,
  LOGITS_ROWS,
  RECOMPUTED_ROWS,
  type SlotTokens,
  VERIFIED_ROWS,
  type VerifiedRun,
} from '../../contracts/rank.js';
import { CHUNK_TOKENS, KV_BLOCK } from '../../../base/kv_units.js';
import { nth } from '../../../base/lists.js';
import { roundsOf, type Runner } from '../../ranks/runner.js';
import { readsSeen } from '../../ranks/sampling/sampling_options.js';
import type { PrefillChunk, ScheduledSequence, WorkList } from '../../scheduler/index.js';
import type { Pictures } from '../pictures.js';
import type { PoolSlots } from './pool_slots.js';
import type { TrunkRows } from '../speculation/trunk_rows.js';

/** What the ranks have of a prompt's positions, in order. */
export interface WantedRows {
  /** f32 logits [vocabSize] (default), or final hidden states [hiddenSize] before the last norm. */
  readonly what?: 'logits' | 'states';
  /** Of every position, or of the last one only. */
  readonly all: boolean;
  readonly onRow: (position: number, row: Float32Array) => void;
}

/** What requests are made of, by their ids. */
export interface RequestSource {
  /** @param drafts beside its next row: what is allowed is then of each row, one behind the other */
  sampling(id: string, drafts?: number): DrawOptions;
  /** What was computed of it elsewhere: its prompt, or a beginning that was kept. */
  handed(id: string): HandedKv;
  /** Of its rows: where on the ranks its adapter is. */
  adapter(id: string): number | undefined;
  promptRows(id: string): WantedRows | undefined;
  /** Of a model that takes them. */
  readonly pictures: Pictures | undefined;
  /** Where drafts are made of a request's rows now: takes them. */
  rows(id: string): TrunkRows | undefined;
}

/** A run of a sequence's tokens, of one role. */
interface Item extends SlotTokens {
  readonly sequence: ScheduledSequence;
  readonly wanted: WantedRows | undefined;
  /** Takes those of its positions. */
  readonly rows: TrunkRows | undefined;
}

/** Takes a call of the ranks' that is under way. */
type Call = (of: Promise<unknown>) => void;

interface Row {
  readonly sequence: ScheduledSequence;
  /** Takes part in decode steps. */
  decoding: boolean;
  /** Of a stepwise sequence, or one that rests: the ranks have all of it, and wait for what may come next. */
  paused: boolean;
  /** Its last tokens came of drafts: the ranks are told of them before it decodes. */
  isBehind: boolean;
}

export interface IterationOutcome {
  /** By slot, where any sequence samples. */
  readonly ids: Uint32Array | undefined;
  /** Tokens that blocks need no longer hold, of each request whose prompt ended and was compressed. */
  readonly evicted: ReadonlyMap<string, number>;
  /** By request whose row ran beside drafts, its own or others'. */
  readonly verified: ReadonlyMap<string, Verified>;
}

export interface Verified {
  readonly drafted: number;
  /** The token sampled at its row, and those behind drafts that were right. */
  readonly tokens: readonly number[];
  /** Of the verification: its own. */
  readonly row: number;
}

/** Does on the ranks what the scheduler decided. Calls are queued at once and run in order; only the sampled ids are awaited. */
export class IterationRunner {
  /** By slot of the batch: the sequence whose cache it has. */
  readonly #rows = new Map<number, Row>();
  /** Sequences came or went since copies of heads shared them out. */
  #unbalanced = false;
  /** Until the rows of a sequence's positions that were asked for last are told: ranks that have others may be quicker. */
  readonly #told = new WeakMap<ScheduledSequence, Promise<void>>();

  constructor(
    readonly runner: Runner,
    readonly slots: PoolSlots,
    readonly source: RequestSource,
  ) {}

  /**
   * Runs one iteration's work.
   * @param works of each KV pool
   */
  async run(works: readonly WorkList[]): Promise<IterationOutcome> {
    const calls: Promise<unknown>[] = [];
    const evicted = new Map<string, number>();
    const call: Call = (of) => {
      of.catch(() => {}); // awaited below, together
      calls.push(of);
    };
    const decodes = new Set(works.flatMap((work) => work.decodes.map(({ id }) => id)));
    this.#clear(works, decodes, call);
    this.#move(works, call);
    for (const [pool, work] of works.entries()) this.#setUp(work, pool, call, evicted);
    if (this.#unbalanced && this.runner.sharesSequences) call(this.runner.balanceCopies(this.#shared()));
    this.#unbalanced = false;
    const chunks = works.flatMap(({ prefills }, pool) =>
      prefills.map((chunk) => ({ chunk, slot: this.slots.of(pool, chunk.sequence.slot) })),
    );
    if (chunks.length > 0) this.#prefill(chunks, call, evicted);
    this.#wake(works, call);
    const verified = new Map<string, Verified>();
    this.#verify(works, call, verified);
    const sampled = this.#sample(decodes, call);
    this.#takeRows(works, call);
    for (const [pool, work] of works.entries()) {
      this.#copyKept(work.kept, work.keptPrompts, pool, call, false);
    }
    this.#pause(call);
    // Errors included: nothing of them may be under way when the ranks are set up anew.
    await Promise.allSettled(calls);
    await Promise.all(calls);
    return { ids: await sampled, evicted, verified };
  }

  /** Frees and pauses rows whose sequences ended, were sent back, or are elsewhere now. */
  #clear(works: readonly WorkList[], decodes: ReadonlySet<string>, call: Call): void {
    for (const [slot, row] of this.#rows) {
      const { status, rank, slot: now, stepwise, resting } = row.sequence;
      if (resting && status === 'decode' && this.slots.of(rank, now) === slot) {
        if (row.decoding) this.#pauseRow(row, slot, call);
        continue;
      }
      // Ended, aborted, preempted or elsewhere: its row must not write where another sequence's tokens may now be.
      const isOver = status === 'finished' || (row.decoding && !decodes.has(row.sequence.id));
      const runs = status === 'decode' || (stepwise && status === 'prefill');
      if (isOver || (runs && this.slots.of(rank, now) !== slot)) this.#free(slot, call);
    }
    for (const { id } of works.flatMap((work) => work.preempted)) {
      for (const [slot, row] of this.#rows) if (row.sequence.id === id) this.#free(slot, call);
    }
  }

  /** Moves sequences' caches from pool to pool. */
  #move(works: readonly WorkList[], call: Call): void {
    for (const [pool, { moves }] of works.entries()) {
      for (const { sequence, from, to, toWindows } of moves) {
        const source = { slot: this.slots.of(from.rank, from.slot), blocks: from.blocks, windows: from.windows };
        const target = { slot: this.slots.of(pool, sequence.slot), blocks: to, windows: toWindows };
        call(this.runner.all((rank) => rank.moveBlocks(source, target)));
      }
    }
  }

  /** Gives sequences of a pool their blocks, and what is in them already: kept states and prompts, what another device computed. */
  #setUp(work: WorkList, pool: number, call: Call, evicted: Map<string, number>): void {
    const { runner, slots } = this;
    const any = slots.of(pool, 0);
    if (work.copies.length > 0) call(runner.all((rank) => rank.copyBlocks(any, work.copies)));
    for (const sequence of work.tables) this.#setBlocks(sequence, slots.of(pool, sequence.slot), call);
    this.#copyKept(work.restored, work.restoredPrompts, pool, call, true);
    for (const { sequence, start, samples: begins } of work.handed) {
      const slot = slots.of(pool, sequence.slot);
      const taken = runner.handOver(slot, this.source.handed(sequence.id), Math.floor(start / KV_BLOCK));
      call(taken.then((tokens) => tokens !== undefined && evicted.set(sequence.id, tokens)));
      if (begins) this.#start(sequence, slot, call);
    }
  }

  /** Rows that decode again, after a pause or in a slot of their own. */
  #wake(works: readonly WorkList[], call: Call): void {
    for (const [pool, work] of works.entries()) {
      for (const sequence of work.decodes) {
        const slot = this.slots.of(pool, sequence.slot);
        const row = this.#rows.get(slot)!;
        if (sequence.drafts) continue;
        if (row.paused && !row.isBehind) this.#goOn(row, slot, call);
        else if (!row.decoding) this.#resume(sequence, slot, call);
      }
    }
  }

  /** Rows that have drafts beside them run in a step of their own, with others' that are to. @param verified takes what came of each */
  #verify(works: readonly WorkList[], call: Call, verified: Map<string, Verified>): void {
    const { runner } = this;
    const steps: {
      readonly sequence: ScheduledSequence;
      readonly drafts: readonly number[];
      readonly run: VerifiedRun;
    }[][] = [];
    let room = 0;
    for (const [pool, { decodes }] of works.entries()) {
      for (const sequence of decodes) {
        const { drafts } = sequence;
        if (!drafts) continue;
        const run = this.#runOf(sequence, drafts, this.slots.of(pool, sequence.slot), call);
        if (run.tokens.length > room) {
          steps.push([]);
          room = VERIFIED_ROWS;
        }
        steps.at(-1)!.push({ sequence, drafts, run });
        room -= run.tokens.length;
      }
    }
    for (const step of steps) {
      const came = runner.verify(step.map(({ run }) => run)).then((answers) =>
        step.map(({ sequence: { id }, drafts }, index) => {
          const { row, ids } = nth(answers, index);
          const wrong = drafts.findIndex((draft, at) => draft !== ids[at]);
          const right = wrong < 0 ? drafts.length : wrong;
          verified.set(id, { drafted: drafts.length, tokens: [...ids.subarray(0, right + 1)], row });
          return right + 1;
        }),
      );
      call(came);
      for (const [at, { sequence, run }] of step.entries()) {
        const rows = this.source.rows(sequence.id);
        if (!rows) continue;
        const { length } = run.tokens;
        const count = came.then((counts) => nth(counts, at));
        call(this.#take(rows, run.start, count, runner.slotStates(run.slot, length), length));
      }
    }
  }

  /** A row and its drafts; it takes no part in usual steps meanwhile. */
  #runOf(sequence: ScheduledSequence, drafts: readonly number[], slot: number, call: Call): VerifiedRun {
    const { id, computed, sampled, draftState } = sequence;
    const row = this.#rows.get(slot)!;
    if (row.decoding) this.#pauseRow(row, slot, call);
    [row.paused, row.isBehind] = [true, true];
    if (draftState !== undefined) call(this.runner.all((rank) => rank.copyState(slot, draftState, false)));
    const start = computed - 1;
    const sampling = { ...this.source.sampling(id, drafts.length), counter: sampled - 1 };
    const tokens = Uint32Array.of(sequence.tokenAt(start), ...drafts);
    const seen = readsSeen(sampling) ? Uint32Array.of(...this.#seen(sequence, start), ...tokens) : tokens;
    return { slot, tokens, start, sampling, seen };
  }

  /** Of the steps just called, of those whose drafts are made of them. */
  #takeRows(works: readonly WorkList[], call: Call): void {
    for (const [pool, { decodes }] of works.entries()) {
      for (const { id, drafts, computed, slot } of decodes) {
        const rows = drafts ? undefined : this.source.rows(id);
        if (rows) call(this.#take(rows, computed - 1, 1, this.runner.slotStates(this.slots.of(pool, slot)), 1));
      }
    }
  }

  /** Rows of positions from `start` on: `count` of the `most` that come count. */
  async #take(
    rows: TrunkRows,
    start: number,
    count: number | Promise<number>,
    states: Promise<Float32Array | undefined>,
    most: number,
  ): Promise<void> {
    const [found, taken] = await Promise.all([states, count]);
    if (found) this.#eachRow(found, most, (at, row) => at < taken && rows.take(start + at, row));
  }

  #eachRow(rows: Float32Array, count: number, onRow: (at: number, row: Float32Array) => void, what = 'states'): void {
    const { vocabSize, hiddenSize } = this.runner.config;
    const stride = rows.length / count;
    const width = what === 'logits' ? vocabSize : hiddenSize;
    for (let at = 0; at < count; at++) onRow(at, rows.slice(at * stride, at * stride + width));
  }

  /** Nobody wants what is under way of this request: the ranks stop computing it. Call it when the request is aborted. */
  drop(id: string): void {
    for (const [slot, { sequence }] of this.#rows) {
      if (sequence.id !== id) continue;
      // A rank that fails is told of by the calls under way.
      this.runner.all((rank) => rank.drop(slot)).catch(() => {});
    }
  }

  /** A step of each batch that has anything to sample: the ranks run them side by side. */
  #sample(decodes: ReadonlySet<string>, call: Call): Promise<Uint32Array> | undefined {
    const { runner } = this;
    const { slots, batches = 1 } = runner.options;
    const steps: Promise<void>[] = [];
    const ids = new Uint32Array(slots * batches);
    for (let batch = 0; batch < batches; batch++) {
      const active: number[] = [];
      let longest = 0;
      for (const [slot, { decoding, sequence }] of this.#rows) {
        if (!decoding || Math.floor(slot / slots) !== batch) continue;
        active.push(slot - batch * slots);
        if (decodes.has(sequence.id)) longest = Math.max(longest, sequence.computed);
      }
      if (active.length === 0) continue;
      const step = runner.sample(batch, longest > 0, Math.max(1, longest), active);
      steps.push(step.then((own) => ids.set(own, batch * slots)));
    }
    if (steps.length === 0) return undefined;
    const sampled = Promise.all(steps).then(() => ids);
    call(sampled);
    return sampled;
  }

  /** By slot of the ranks: tokens that its sequence attends to in a decode step; 0 where none decodes. */
  get lengths(): number[] {
    const { slots, batches = 1 } = this.runner.options;
    return Array.from({ length: slots * batches }, (_, slot) => {
      const row = this.#rows.get(slot);
      return row?.decoding || row?.isBehind ? row.sequence.computed : 0;
    });
  }

  /** The sequences that there are, as copies of heads share them out. */
  #shared(): SharedSequence[] {
    const { runner } = this;
    return [...this.#rows].map(([slot, { sequence, decoding, paused }]) => {
      const { prompt, computed, maxTokens, sampled } = sequence;
      // A prompt that isn't whole yet stays where it is.
      const remaining = decoding || paused ? Math.max(0, maxTokens - sampled) : 0;
      const entries = runner.entriesOf(slot, prompt.length, Math.max(prompt.length, computed));
      return { slot, length: computed, ...entries, remaining };
    });
  }

  /** Copies states and prompts to where they are kept, or `back` to sequences that begin with them. */
  #copyKept(states: WorkList['kept'], prompts: WorkList['keptPrompts'], pool: number, call: Call, back: boolean): void {
    for (const { sequence, place } of states) {
      const slot = this.slots.of(pool, sequence.slot);
      call(this.runner.all((rank) => rank.copyState(slot, place, back)));
    }
    for (const { sequence, first, blocks } of prompts) {
      const slot = this.slots.of(pool, sequence.slot);
      call(this.runner.all((rank) => rank.copyPrompt(slot, first, blocks, back)));
    }
  }

  #decodes(slot: number): void {
    this.#rows.get(slot)!.decoding = true;
    this.#unbalanced = true;
  }

  #free(slot: number, call: Call): void {
    this.#unbalanced = true;
    this.#rows.delete(slot);
    call(this.runner.all((rank) => rank.release(slot)));
  }

  #setBlocks(sequence: ScheduledSequence, slot: number, call: Call): void {
    const { blocks, windows, capacity, offset } = sequence;
    let row = this.#rows.get(slot);
    if (row && row.sequence.id !== sequence.id) {
      this.#free(slot, call);
      row = undefined;
    }
    if (!row) {
      row = { sequence, decoding: false, paused: false, isBehind: false };
      this.#rows.set(slot, row);
      this.#unbalanced = true;
      const adapter = this.source.adapter(sequence.id);
      if (adapter !== undefined) call(this.runner.all((rank) => rank.useAdapter(slot, adapter)));
      const spans = this.source.pictures?.spans(sequence.prompt) ?? [];
      if (spans.length > 0) call(this.runner.all((rank) => rank.placePictures(slot, spans)));
    }
    if (this.runner.options.compression) {
      call(this.runner.all((rank) => rank.reserve(slot, capacity, offset)));
      return;
    }
    const now = [...blocks];
    call(this.runner.all((rank) => rank.setBlocks(slot, now, offset, windows)));
  }

  #prefill(
    chunks: readonly { readonly chunk: PrefillChunk; readonly slot: number }[],
    call: Call,
    evicted: Map<string, number>,
  ): void {
    const { runner } = this;
    const idOf = (slot: number): string => chunks.find((chunk) => chunk.slot === slot)!.chunk.sequence.id;
    for (const { slot } of chunks) Object.assign(this.#rows.get(slot)!, { paused: false, isBehind: false });
    for (const role of ['prompt', 'generated'] as const) {
      const items = chunks.filter(({ chunk }) => chunk.role === role).flatMap((item) => this.#itemsOf(item));
      for (const round of roundsOf(runner.owners, items)) {
        if (role === 'generated') call(runner.recomputeRound(round));
        else {
          const ran = runner.prefillRound(round);
          call(ran.then((found) => found.forEach((tokens, slot) => evicted.set(idOf(slot), tokens))));
        }
        for (const item of round) this.#tell(item, call);
      }
    }
    for (const { chunk, slot } of chunks) if (chunk.samples) this.#start(chunk.sequence, slot, call);
  }

  /** What one call runs of a chunk: all of it, but for what is wanted of recomputed rows, which the ranks have of the last few only. */
  #itemsOf({ chunk, slot }: { readonly chunk: PrefillChunk; readonly slot: number }): Item[] {
    const { sequence, start, count, role, samples } = chunk;
    const wanted = this.source.promptRows(sequence.id);
    const most = wanted && role === 'generated' ? RECOMPUTED_ROWS : count;
    const rows = role === 'prompt' ? this.source.rows(sequence.id) : undefined;
    return Array.from({ length: Math.ceil(count / most) }, (_, piece) => {
      const first = start + piece * most;
      const length = Math.min(most, start + count - first);
      const tokens = Uint32Array.from({ length }, (_token, i) => sequence.tokenAt(first + i));
      // Also of a prompt that is computed again: compression comes with its end.
      const last = samples || (role === 'prompt' && first + length === sequence.prompt.length);
      const pictures = role === 'prompt' ? this.source.pictures : undefined;
      const given = pictures?.rows(tokens);
      const runEnd = pictures?.runEnd(tokens, first);
      return { slot, tokens, start: first, last, given, runEnd, sequence, wanted, rows };
    });
  }

  /** What is wanted of an item's positions, while the ranks have their rows. */
  #tell(item: Item, call: Call): void {
    const { wanted, rows } = item;
    const { prompt, sampled } = item.sequence;
    if (wanted) this.#tellFrom(item, wanted.all ? 0 : prompt.length + sampled - 1, wanted, call);
    const onRow: WantedRows['onRow'] = (position, row) => rows?.take(position, row);
    if (rows) this.#tellFrom(item, rows.firstOf(prompt.length), { what: 'states', onRow }, call);
  }

  #tellFrom(
    { slot, start, tokens, sequence }: Item,
    first: number,
    { what = 'logits', onRow }: Pick<WantedRows, 'what' | 'onRow'>,
    call: Call,
  ): void {
    const end = start + tokens.length;
    for (let at = Math.max(start, first); at < end;) {
      // A run may not cross a chunk, whose rows may be another rank's.
      const chunkEnd = (Math.floor(at / CHUNK_TOKENS) + 1) * CHUNK_TOKENS;
      const most = what === 'logits' ? LOGITS_ROWS : CHUNK_TOKENS;
      const run = { start: at, count: Math.min(most, end - at, chunkEnd - at) };
      const before = this.#told.get(sequence)?.catch(() => {}); // the call that failed is told of already
      const told = Promise.all([this.runner.rowsOf(slot, what, run), before]).then(([rows]) => {
        if (sequence.status === 'finished') return; // aborted: they may be anything
        this.#eachRow(rows, run.count, (i, row) => onRow(run.start + i, row), what);
      });
      this.#told.set(sequence, told);
      call(told);
      at += run.count;
    }
  }

  /** The next step samples the first token of a prompt that is in the cache. */
  #start(sequence: ScheduledSequence, slot: number, call: Call): void {
    const sampling = this.source.sampling(sequence.id);
    const { length } = sequence.prompt;
    const seen = this.#seen(sequence, length);
    call(this.runner.all((rank) => rank.start(slot, sampling, seen)));
    this.#decodes(slot);
  }

  /** What stepwise sequences may sample next follows from what was sampled now, which isn't known yet. */
  #pause(call: Call): void {
    for (const [slot, row] of this.#rows) {
      if (row.decoding && row.sequence.stepwise) this.#pauseRow(row, slot, call);
    }
  }

  #pauseRow(row: Row, slot: number, call: Call): void {
    row.decoding = false;
    row.paused = true;
    call(this.runner.all((rank) => rank.pause(slot)));
  }

  #goOn(row: Row, slot: number, call: Call): void {
    const { id, computed } = row.sequence;
    const position = computed - 1;
    const token = row.sequence.tokenAt(position);
    const { allowed } = this.source.sampling(id);
    call(this.runner.all((rank) => rank.goOn(slot, token, position, allowed)));
    row.decoding = true;
    row.paused = false;
  }

  /** The first tokens of a sequence, as penalties count them. */
  #seen(sequence: ScheduledSequence, length: number): Uint32Array {
    const ids = Uint32Array.from({ length }, (_, position) => sequence.tokenAt(position));
    return this.source.pictures?.withPlaceholders(ids) ?? ids;
  }

  /** Back where it was before it was preempted: the last token sampled is fed next. */
  #resume(sequence: ScheduledSequence, slot: number, call: Call): void {
    const { id, computed, sampled } = sequence;
    const position = computed - 1;
    const seen = this.#seen(sequence, computed);
    const sampling = { ...this.source.sampling(id), counter: sampled - 1 };
    const token = sequence.tokenAt(position);
    call(this.runner.all((rank) => rank.resume(slot, sampling, seen, token, position)));
    Object.assign(this.#rows.get(slot)!, { paused: false, isBehind: false });
    this.#decodes(slot);
  }
}
