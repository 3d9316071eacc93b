import { nth, range, sum } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import { chunkOwner, leastLoadedOffset } from '../../placement/owner.js';
import { evenLanes, Pool, WindowBlocks } from './block_pool.js';
import { laneBlocks, laneOf, type RankLimits, type SchedulerConfig } from './config.js';
import { chooseGroup, type GroupLoad } from './groups/micro_batches.js';
import type { WorkList } from './iteration.js';
import { KeptPrompts, NOTHING_CACHED, PrefixCache, type PrefixMatch } from './prefix_cache.js';
import { byTurns, Clients, nextInTurn, victimOf } from './priority.js';
import type { Sequence } from './sequence.js';
import { insertInOrder, removeFrom, WaitingQueue } from './waiting_queue.js';

/** Tokens at a prompt's end that the next turn of a conversation may have otherwise: where an answer begins. */
const TURN_TOKENS = 8;

/** Blocks that a waiting sequence would take, by lane of the pool. */
interface BlockDemand {
  /** The sequence's offset: of the beginning that is cached, or the best one. */
  readonly offset: number;
  /** Blocks to allocate. */
  readonly fresh: readonly number[];
  /** Kept blocks that the prefix cache gives back to use. */
  readonly revived: readonly number[];
}

/** What prompts of an iteration may have still: rows, those beside other clients' rows, and sequences. */
interface PromptBudget {
  rows: number;
  few: number;
  places: number;
}

/** One rank: its blocks, slots, running sequences, and those bound to it that wait. */
export class RankState {
  readonly pool: Pool;
  readonly cache: PrefixCache | undefined;
  /** Where layers with windows have blocks of their own. */
  readonly windows: WindowBlocks | undefined;
  /** Bound to this rank, not running. */
  readonly pending = new WaitingQueue();
  /** In order. */
  readonly running: Sequence[] = [];
  /** Of `running`: past their prefill. */
  numDecoding = 0;
  /** Prompt tokens of all bound sequences, as they came. */
  promptTokens = 0;
  readonly #compressed: Sequence[] = [];
  #resting: ReadonlySet<Sequence> = new Set();
  /** Where prompts are compressed, instead of `cache`: their blocks hold other tokens when they have ended. */
  readonly prompts: KeptPrompts | undefined;
  /** Of a model with recurrent layers. */
  readonly #states: Pool | undefined;
  /** By micro-batch. */
  readonly #slots: Pool;
  readonly #watermarkBlocks: number;
  readonly #blockTokens: number;
  readonly #lanes: number;

  constructor(
    readonly index: number,
    readonly limits: RankLimits,
    private readonly config: SchedulerConfig,
    /** By micro-batch: sequences of all ranks that have a slot in it. */
    readonly groupRows: number[] = (limits.microBatches ?? [limits.slots]).map(() => 0),
    /** Of all ranks. */
    private readonly clients = new Clients(),
  ) {
    this.#blockTokens = config.blockTokens;
    const { keptStates, keptBlocks = 0, eviction } = config;
    const shares = config.prefixCaching && !eviction;
    this.prompts =
      config.prefixCaching && eviction && keptBlocks > 0
        ? new KeptPrompts(keptBlocks, config.blockTokens, eviction)
        : undefined;
    const { numBlocks, lanes, windows } = limits;
    this.cache = shares ? new PrefixCache(config.blockTokens, windows?.tokens, keptStates) : undefined;
    this.#states = this.cache?.states;
    this.windows = windows && new WindowBlocks(windows, lanes, config, this.cache);
    this.pool = new Pool(evenLanes(numBlocks, lanes), this.cache);
    this.#lanes = lanes ?? 1;
    this.#slots = new Pool(limits.microBatches ?? [limits.slots], undefined, true);
    this.#watermarkBlocks = Math.ceil(numBlocks * config.watermark);
  }

  get numActive(): number {
    return this.running.length + this.pending.length;
  }

  get numFreeSlots(): number {
    return this.#slots.numFree;
  }

  /** By micro-batch. */
  get groupLoads(): GroupLoad[] {
    const attended = this.groupRows.map(() => 0);
    for (const { slot, computed } of this.running) attended[this.#slots.laneOf(slot)]! += computed;
    return this.groupRows.map((rows, group) => ({
      rows,
      attended: nth(attended, group),
      freeSlots: this.#slots.freeIn(group),
    }));
  }

  groupOf({ slot }: Sequence): number {
    return this.#slots.laneOf(slot);
  }

  get attended(): number {
    return this.running.reduce((sum, { computed }) => sum + computed, 0);
  }

  get outstandingContext(): number {
    let rows = 0;
    if (this.running.length > this.numDecoding) {
      for (const sequence of this.running)
        if (sequence.status === 'prefill') rows += sequence.target - sequence.computed;
    }
    return rows;
  }

  canEverHold(sequence: Sequence): boolean {
    const inLane = laneBlocks([0, this.mostBlocks(sequence)], 0, this.#lanes, this.config);
    return Math.max(...inLane) <= this.limits.numBlocks / this.#lanes;
  }

  mostBlocks({ most }: Sequence): number {
    return ceilDiv(most, this.#blockTokens);
  }

  demand(sequence: Sequence, match = this.#match(sequence)): BlockDemand {
    const offset = match.offset ?? this.#bestOffset(sequence);
    const shared = this.#sharedBlocks(match);
    const end = ceilDiv(sequence.target, this.#blockTokens);
    const fresh = laneBlocks([shared.length, end], offset, this.#lanes, this.config);
    const revived = fresh.map(() => 0);
    for (const block of shared) if (this.pool.holders(block) === 0) revived[this.pool.laneOf(block)]! += 1;
    return { offset, fresh, revived };
  }

  #laneOf(block: number, offset: number): number {
    return laneOf(block, offset, this.#lanes, this.config);
  }

  /** For a sequence of which nothing is cached: so that lanes hold about as much as each other when it has all its tokens. */
  #bestOffset(sequence: Sequence): number {
    const { rotations = this.#lanes } = this.limits;
    if (rotations === 1) return 0;
    const { chunkTokens } = this.config;
    const chunks = Array.from({ length: rotations }, () => 0);
    for (const { offset, most } of this.running) {
      for (let chunk = 0; chunk * chunkTokens < most; chunk++) chunks[chunkOwner(chunk, rotations, offset)]! += 1;
    }
    return leastLoadedOffset(chunks, Math.ceil(sequence.most / chunkTokens));
  }

  /** Whether a sequence would be admitted after `taken` more blocks and `admitted` more sequences. */
  wouldAdmit(sequence: Sequence, taken: readonly number[] = [], admitted = 0): boolean {
    const { offset, fresh, revived } = this.demand(sequence);
    const all = fresh.map((count, lane) => count + (taken[lane] ?? 0));
    return this.#mayAdmit(sequence, { offset, fresh: all, revived }, this.running.length + admitted);
  }

  /**
   * Admission: a sequence gets the blocks of all its known tokens at once, and must leave the watermark free, so that the running
   * ones can grow for a while before one is preempted. One that was preempted must also leave each of them a block, otherwise it would
   * come back only to be sent away again. On an idle rank neither counts: something must run.
   */
  #mayAdmit(sequence: Sequence, { fresh, revived }: BlockDemand, running = this.running.length): boolean {
    if (this.windows?.fits(sequence) === false) return false;
    const headroom = running === 0 ? 0 : this.#watermarkBlocks + (sequence.preemptions > 0 ? running : 0);
    const rest = fresh.map((count, lane) => this.pool.freeIn(lane) - nth(revived, lane) - count);
    return rest.every((left) => left >= 0) && sum(rest) >= headroom;
  }

  cachedTokens(sequence: Sequence): number {
    return this.#match(sequence).tokens;
  }

  bind(sequence: Sequence): void {
    sequence.rank = this.index;
    this.promptTokens += sequence.promptLength;
    this.pending.insert(sequence);
  }

  /** Gives back those that wait here, or of these those that ran before. */
  unbindPending(preempted = false): Sequence[] {
    const all = this.pending.takeAll();
    const sequences = preempted ? all.filter(({ preemptions }) => preemptions > 0) : all;
    if (preempted) for (const sequence of all) if (sequence.preemptions === 0) this.pending.insert(sequence);
    for (const sequence of sequences) {
      sequence.rank = -1;
      this.promptTokens -= sequence.promptLength;
    }
    return sequences;
  }

  /** Whether there is a slot and blocks for a running sequence of another rank. */
  canTakeIn(sequence: Sequence): boolean {
    const { blocks, offset } = sequence;
    if (this.windows?.fits(sequence) === false) return false;
    const needed = laneBlocks([0, blocks.length], offset, this.#lanes, this.config);
    return this.#slots.numFree > 0 && needed.every((count, lane) => this.pool.freeIn(lane) >= count);
  }

  /** Takes a running sequence over that has nothing in flight, with copies of its blocks. */
  takeIn(sequence: Sequence, from: RankState, work: WorkList): void {
    const { capacity, slot, blocks, windows, windowsFrom } = sequence;
    const old = { rank: from.index, slot, blocks, windows };
    const toWindows = this.windows?.takeIn(sequence) ?? windows;
    const to = sequence.blocks.map((_, at) => this.pool.allocate(this.#laneOf(at, sequence.offset)));
    from.#leave(sequence);
    sequence.rank = this.index;
    sequence.blocks = to;
    sequence.capacity = capacity;
    sequence.windows = toWindows;
    sequence.windowsFrom = windowsFrom;
    this.#takeSlot(sequence, sequence.computed);
    this.promptTokens += sequence.promptLength;
    // It may have tokens to compute before it decodes again.
    if (sequence.status === 'decode') this.numDecoding++;
    insertInOrder(this.running, sequence);
    this.cache?.register(sequence, 0, sequence.confirmed, false);
    work.moves.push({ sequence, from: old, to: [...to], toWindows });
    work.tables.push(sequence);
  }

  /** Puts a running sequence that has nothing in flight into another micro-batch, where that has a free slot; makes its row again. */
  shift(sequence: Sequence, work: WorkList): void {
    const group = sequence.shiftsTo;
    sequence.shiftsTo = -1;
    if (this.#slots.freeIn(group) > 0) {
      this.#giveSlot(sequence);
      sequence.slot = this.#slots.allocate(group);
      this.groupRows[group]!++;
    }
    work.tables.push(sequence);
  }

  /** `tokens`: what it will attend to. */
  #takeSlot(sequence: Sequence, tokens: number): void {
    const group =
      this.groupRows.length === 1 ? 0 : chooseGroup(this.groupLoads, tokens, this.config.rowsPerMicroBatch)!;
    sequence.slot = this.#slots.allocate(group);
    this.groupRows[group]!++;
    this.clients.took(sequence.client);
  }

  #giveSlot({ slot }: Sequence): void {
    this.#slots.release([slot]);
    this.groupRows[this.#slots.laneOf(slot)]!--;
  }

  /** Whether `planPrefills` would run anything: asked before a policy decides whether contexts run at all. */
  hasRunnableContext(work: WorkList): boolean {
    const budget = this.config.maxTokensPerIteration - work.decodes.length;
    const first = this.running.find(hasContext);
    if (first) return this.#rowsWithin(this.#rowsNow(first, budget), first, first.computed) > 0;
    const head = this.#nextPending();
    if (!head || this.#slots.numFree === 0 || head.outstanding > 0 || work.crowded) return false;
    if (!this.wouldAdmit(head)) return false;
    const known = this.#knownTokens(head, this.cachedTokens(head));
    return known === head.target || this.#rowsWithin(this.#rowsNow(head, budget), head, known) > 0;
  }

  /** Of a budget, rows that a sequence may have now. */
  #rowsNow(sequence: Sequence, budget: number): number {
    return this.windows ? Math.min(budget, this.windows.room(sequence)) : budget;
  }

  /** Adds a row for every sequence that decodes. Blocks run out: the last in order make room. */
  planDecodes(work: WorkList): void {
    const { running: all, clients } = this;
    const running = clients.several ? byTurns(all) : all;
    const resting = clients.resting(this.#withNext(running));
    this.#resting = resting ?? new Set();
    const rows = running.length - this.#resting.size;
    // Their blocks hold other tokens than before.
    for (const sequence of this.#compressed.splice(0)) {
      if (sequence.evicted > 0 && all.includes(sequence)) work.tables.push(sequence);
    }
    for (let i = 0; i < running.length; i++) {
      const sequence = nth(running, i);
      if (sequence.status === 'prefill') {
        // Tokens that weren't sampled came behind those that it has blocks for.
        while (sequence.capacity < sequence.target) if (!this.#grow(sequence, running, work)) break;
        continue;
      }
      // It rests until nothing of it is in flight, then goes on further down.
      if (sequence.slot >= rows && sequence.status === 'decode' && this.#lowerSeat(sequence)) sequence.resting = true;
      const rested = sequence.resting;
      if (!this.#mayDecode(sequence, resting)) continue;
      if (rested) this.#seatLower(sequence, work);
      if (sequence.computed === sequence.capacity) {
        if (!this.#grow(sequence, running, work)) continue; // it was itself the last
      }
      this.#advanceWindows(sequence, sequence.computed + 1, work);
      sequence.computed++;
      sequence.sampled++;
      sequence.resting = false;
      if (resting) sequence.rowAt = clients.now();
      sequence.outstanding++;
      if (sequence.computed % this.#blockTokens === 0) this.#keepState(sequence, work, true);
      work.decodes.push(sequence);
    }
    this.#fitDrafts(work);
  }

  /** Of the drafts of sequences that have their rows those stay that there is room for: they take nothing from others. */
  #fitDrafts(work: WorkList): void {
    for (const sequence of work.decodes) {
      const { drafts, computed, sampled, maxTokens } = sequence;
      if (!drafts) continue;
      sequence.draftState = this.#freeDraftState();
      const comesBack = this.config.draftStates === undefined || sequence.draftState !== undefined;
      const most = comesBack ? Math.min(drafts.length, maxTokens - sampled, this.#rowsNow(sequence, Infinity)) : 0;
      while (sequence.capacity < computed + most) {
        if (this.pool.freeIn(this.#laneOf(sequence.blocks.length, sequence.offset)) <= this.#watermarkBlocks) break;
        this.#grow(sequence, [], work);
      }
      sequence.drafts = drafts.slice(0, Math.max(0, Math.min(most, sequence.capacity - computed)));
      if (sequence.drafts.length === 0) sequence.draftState = undefined;
      this.#advanceWindows(sequence, computed + sequence.drafts.length, work);
    }
    // None is left: their rows are usual ones.
    const isUsual = work.decodes.every(({ drafts = [] }) => drafts.length === 0);
    for (const sequence of work.decodes) {
      if (isUsual) sequence.drafts = undefined;
      sequence.held = sequence.stepwise || sequence.drafts !== undefined;
    }
  }

  /** Where the state of a sequence before its drafts may be kept. */
  #freeDraftState(): number | undefined {
    const { keptStates = 0, draftStates = 0 } = this.config;
    const taken = new Set(this.running.map(({ draftState }) => draftState));
    return range(keptStates, keptStates + draftStates).find((place) => !taken.has(place));
  }

  /** Those that run, and the one that is admitted next where it is now: its client has rows again at once. */
  #withNext(running: readonly Sequence[]): readonly Sequence[] {
    const next = this.clients.several && this.numFreeSlots > 0 ? this.#nextPending() : undefined;
    return next && this.wouldAdmit(next) ? [...running, next] : running;
  }

  /** Of those that rest in this iteration, the one in the lowest slot below a sequence's. */
  #lowerSeat({ slot }: Sequence): Sequence | undefined {
    if (!this.config.shiftsSlots || this.groupRows.length > 1) return undefined;
    let lowest: Sequence | undefined;
    for (const other of this.#resting) {
      const isIdle = other.resting && other.status === 'decode' && other.outstanding === 0;
      if (isIdle && other.slot < (lowest?.slot ?? slot)) lowest = other;
    }
    return lowest;
  }

  /** A step computes rows up to the highest slot with one: a sequence that begins, or goes on, changes places with one that rests. */
  #seatLower(sequence: Sequence, work: WorkList): void {
    const other = this.#lowerSeat(sequence);
    if (!other) return;
    [sequence.slot, other.slot] = [other.slot, sequence.slot];
    addTable(work, sequence);
    addTable(work, other);
  }

  /** Whether a sequence may have a row of this iteration. @param resting those whose client has had its turn */
  #mayDecode(sequence: Sequence, resting: ReadonlySet<Sequence> | undefined): boolean {
    if (sequence.held || sequence.status !== 'decode' || sequence.sampled >= sequence.maxTokens) return false;
    if (sequence.leavingFor >= 0 || sequence.shiftsTo >= 0 || this.#rowsNow(sequence, 1) === 0) return false;
    if (resting?.has(sequence)) {
      sequence.resting = !sequence.stepwise;
      return false;
    }
    return !sequence.resting || sequence.outstanding === 0;
  }

  /** `running`: those that run, and those that have just been sent back. */
  #grow(sequence: Sequence, running: readonly Sequence[], work: WorkList): boolean {
    const lane = this.#laneOf(sequence.blocks.length, sequence.offset);
    while (this.pool.freeIn(lane) === 0) {
      // Later than `sequence`, or itself: none that already has its row.
      const victim = victimOf(running.filter(({ status }) => status !== 'waiting')) ?? sequence;
      work.crowded = true;
      this.sendBack(victim, work);
      this.bind(victim);
      if (victim === sequence) return false;
    }
    sequence.blocks.push(this.pool.allocate(lane));
    sequence.capacity += this.#blockTokens;
    work.tables.push(sequence);
    return true;
  }

  /** Before a sequence's rows up to `end` are planned. */
  #advanceWindows(sequence: Sequence, end: number, work: WorkList): void {
    if (this.windows?.advance(sequence, end)) addTable(work, sequence);
  }

  /** Makes room: the sequence waits again, bound to no rank. */
  sendBack(sequence: Sequence, work: WorkList): void {
    this.#leave(sequence);
    sequence.status = 'waiting';
    sequence.stale = sequence.outstanding;
    sequence.computed = 0;
    sequence.confirmed = 0;
    sequence.preemptions++;
    sequence.handed &&= !this.config.handover;
    sequence.handedSpan = [0, 0];
    sequence.leavingFor = -1;
    sequence.resting = false;
    sequence.drafts = undefined;
    sequence.draftState = undefined;
    sequence.takesBack = false;
    sequence.rank = -1;
    work.preempted.push(sequence);
  }

  /**
   * Adds prefill chunks within the budget of rows: of the client first whose prompts were computed longest ago, and of each its running
   * ones first, then waiting ones, in order; none overtakes another of its client. Beside other clients' rows it's few.
   */
  planPrefills(work: WorkList, rows = this.config.maxTokensPerIteration - work.decodes.length): void {
    const { clients } = this;
    const left = { rows, few: clients.promptRows, places: this.config.maxPrefillSequences };
    const begun = this.#contexts();
    for (let next = 0; ;) {
      // Of a client whose turn comes before that of those that have begun; or none of these is left.
      const head = work.crowded ? undefined : this.#nextPending();
      const sequence = begun[next];
      const isNext = head && sequence && clients.promptTurn(head.client) < clients.promptTurn(sequence.client);
      const rests = sequence && clients.promptsRest(sequence.client);
      if (sequence && (rests || !isNext || !this.#startsNow(head, left))) {
        if (!rests && !this.#goesOn(sequence, left, work)) return;
        next++;
        continue;
      }
      if (!head || left.few <= 0 || !this.#startsNow(head, left)) return;
      if (this.#begins(head, left, work)) continue;
      if (!sequence) return;
      // It goes on waiting, and they go on.
      work.crowded = true;
    }
  }

  /** Adds a running sequence's next chunk; false where there is no room for any. */
  #goesOn(sequence: Sequence, left: PromptBudget, work: WorkList): boolean {
    const most = this.#rowsNow(sequence, left.rows);
    const rows = left.places > 0 && left.few > 0 ? this.#chunkRows(sequence, sequence.computed, most, left.few) : 0;
    if (rows > 0) this.#addChunk(sequence, rows, left, work);
    return rows > 0;
  }

  /** Admits a waiting sequence, with its first chunk; false where there is no room for it. */
  #begins(head: Sequence, left: PromptBudget, work: WorkList): boolean {
    const match = this.#match(head);
    const known = this.#knownTokens(head, match.tokens);
    const demand = this.demand(head, match);
    head.offset = demand.offset;
    head.keepsAt = this.prompts?.edgesOf(head, match) ?? this.#statesToKeep(head, match);
    const most = this.#rowsNow(head, left.rows);
    const rows = known === head.target ? 0 : this.#chunkRows(head, known, most, left.few);
    if ((rows === 0 && known < head.target) || !this.#mayAdmit(head, demand)) return false;
    this.#admit(head, match, work);
    if (rows > 0) this.#addChunk(head, rows, left, work);
    return true;
  }

  /** Running sequences that have rows to compute before they can decode, each client's in order. */
  #contexts(): readonly Sequence[] {
    if (this.running.length === this.numDecoding) return [];
    const begun = this.running.filter(hasContext);
    if (!this.clients.several) return begun;
    return byTurns(begun).toSorted((a, b) => a.client.computed - b.client.computed);
  }

  /** Whether there is a slot for it. Rows in flight may still bring ids that recomputing it needs. */
  #startsNow({ outstanding }: Sequence, { places }: PromptBudget): boolean {
    return places > 0 && this.#slots.numFree > 0 && outstanding === 0;
  }

  /**
   * Rows of a sequence's next prefill chunk, from `computed` on; 0 when it doesn't fit the budget. A chunk never mixes prompt and
   * generated rows. Without chunked prefill a prompt runs whole or not at all; generated rows to recompute may always be cut, since
   * together with the prompt they may be more than any budget.
   */
  #rowsWithin(budget: number, sequence: Sequence, computed: number): number {
    const { chunkedPrefill, maxChunkTokens, chunkEnd, eviction } = this.config;
    const inPrompt = sequence.roleAt(computed) === 'prompt';
    const remaining = sequence.runEnd(computed) - computed;
    if (inPrompt && !chunkedPrefill) return remaining <= budget ? remaining : 0;
    let rows = Math.min(remaining, budget, maxChunkTokens);
    if (!inPrompt) return rows;
    if (rows > 0 && chunkEnd)
      rows = chunkEnd(sequence.offset, computed, computed + rows, (at) => sequence.tokenAt(at)) - computed;
    if (rows === remaining) return rows;
    // The last chunk of a prompt that is compressed has its whole window.
    return Math.min(rows, remaining - (eviction?.windowOf(sequence.promptLength) ?? 0));
  }

  /** As `#rowsWithin`, up to where its state is to be kept. @param few rows to keep to where a chunk can be so short */
  #chunkRows(sequence: Sequence, computed: number, budget: number, few = Infinity): number {
    const most = this.#rowsWithin(budget, sequence, computed);
    const rows = (few < most && this.#rowsWithin(few, sequence, computed)) || most;
    if (!this.config.chunkedPrefill) return rows;
    const edge = sequence.keepsAt.find((end) => end > computed);
    return edge === undefined ? rows : Math.min(rows, edge - computed);
  }

  /**
   * Block edges behind which an admitted sequence's state will be wanted: shortly before its prompt's end (templates may end the next
   * turn's otherwise), and where it leaves what others began with, too.
   */
  #statesToKeep({ promptLength, target }: Sequence, { tokens, known = 0 }: PrefixMatch): number[] {
    if (!this.#states) return [];
    const edge = Math.floor((promptLength - 1 - TURN_TOKENS) / this.#blockTokens) * this.#blockTokens;
    return [known, edge]
      .filter((end, at, all) => end > tokens && end < target && all.indexOf(end) === at)
      .toSorted((a, b) => a - b);
  }

  /** Its state will be that of an edge: keeps it. Of what it decodes, the last one, where there are some places for prompts' beside. */
  #keepState(sequence: Sequence, work: WorkList, decoded: boolean): void {
    if (!this.#states || (decoded && this.#states.size < 2 * this.limits.slots)) return;
    // With drafts it will be that of a later row.
    if (this.#states.numFree === 0 || (decoded && sequence.drafts !== undefined)) return;
    const place = this.#states.allocate();
    sequence.keeping.push({ end: sequence.computed, place, decoded });
    work.kept.push({ sequence, place });
  }

  /** The first that may run: where prompts come from elsewhere, the first whose prompt is there. */
  #nextPending(): Sequence | undefined {
    const { clients, pending } = this;
    const firsts = pending.firsts(({ client, hasPrompt }) => hasPrompt && !clients.promptsRest(client));
    const next = nextInTurn(firsts.filter(({ client }) => !clients.hadItsPart(client))) ?? nextInTurn(firsts);
    return next && clients.mayTake(next.client, this.numFreeSlots) ? next : undefined;
  }

  /** Tokens that a waiting sequence would have in the cache as soon as it is admitted. */
  #knownTokens(sequence: Sequence, cached: number): number {
    const [start, end] = sequence.handedSpan;
    return start <= cached ? Math.max(cached, end) : cached;
  }

  #admit(sequence: Sequence, match: PrefixMatch, work: WorkList): void {
    this.pending.remove(sequence);
    const shared = this.#sharedBlocks(match);
    for (const block of shared) this.pool.hold(block);
    sequence.blocks = [...shared];
    for (let at = shared.length; at < ceilDiv(sequence.target, this.#blockTokens); at++) {
      sequence.blocks.push(this.pool.allocate(this.#laneOf(at, sequence.offset)));
    }
    sequence.capacity = sequence.blocks.length * this.#blockTokens;
    if (match.state !== undefined) {
      // It is the one used last now.
      this.#states?.hold(match.state);
      this.#states?.release([match.state]);
      work.restored.push({ sequence, place: match.state });
    }
    sequence.cachedTokens = match.tokens;
    sequence.sampledBefore = sequence.sampled;
    sequence.computed = match.tokens;
    sequence.confirmed = match.tokens;
    this.windows?.admit(sequence, match.windows);
    this.windows?.advance(sequence, match.tokens);
    const restored = this.prompts?.begin(sequence, match);
    if (restored) work.restoredPrompts.push(restored);
    if (match.partial && !this.prompts) {
      const { block: from, tokens, window } = match.partial;
      const to = nth(sequence.blocks, match.blocks.length);
      const windows = window === undefined ? undefined : { from: window, to: sequence.windows.blocks.at(-1)! };
      // The very block may have been the one given out: its content is still there.
      if (from !== to || (windows && windows.from !== windows.to)) {
        work.copies.push({ from, to, tokens, ...(windows && { windows }) });
      }
    }
    this.#takeSlot(sequence, sequence.target);
    this.#seatLower(sequence, work);
    sequence.status = 'prefill';
    insertInOrder(this.running, sequence);
    if (this.#knownTokens(sequence, match.tokens) > match.tokens) this.#takeOver(sequence, work);
    this.#settle(sequence);
    addTable(work, sequence);
  }

  #takeOver(sequence: Sequence, work: WorkList): void {
    const [, end] = sequence.handedSpan;
    const samples = end === sequence.promptLength && sequence.sampled === 0 && !sequence.prefillOnly;
    work.handed.push({ sequence, start: sequence.computed, end, samples });
    // What isn't a worker's is a cache's.
    if (!this.config.handover) sequence.cachedTokens = end;
    sequence.computed = end;
    sequence.windowsFrom = end;
    this.windows?.advance(sequence, end);
    if (samples) this.#sampleFirst(sequence);
    sequence.outstanding++;
  }

  #sampleFirst(sequence: Sequence): void {
    sequence.sampled = 1;
    sequence.held = sequence.stepwise;
  }

  #addChunk(sequence: Sequence, count: number, left: PromptBudget, work: WorkList): void {
    left.rows = Math.max(0, left.rows - count);
    left.few -= count;
    left.places--;
    const start = sequence.computed;
    const role = sequence.roleAt(start);
    const samples = !sequence.prefillOnly && sequence.sampled === 0 && start + count === sequence.promptLength;
    work.prefills.push({ sequence, start, count, role, samples });
    work.contextTokens += count;
    this.clients.computes(sequence.client, count);
    this.#advanceWindows(sequence, start + count, work);
    if (sequence.takesBack) {
      work.restored.push({ sequence, place: sequence.draftState! });
      sequence.draftState = undefined;
      sequence.takesBack = false;
    }
    sequence.computed += count;
    if (samples) this.#sampleFirst(sequence);
    sequence.outstanding++;
    if (sequence.keepsAt.includes(sequence.computed)) {
      const kept = this.prompts?.keep(sequence, sequence.computed);
      if (kept) work.keptPrompts.push(kept);
      this.#keepState(sequence, work, false);
    }
    this.#settle(sequence);
  }

  /** A sequence whose known tokens are all computed decodes from the next iteration on. */
  #settle(sequence: Sequence): void {
    if ((sequence.sampled === 0 && !sequence.prefillOnly) || sequence.computed < sequence.target) return;
    sequence.status = 'decode';
    this.numDecoding++;
  }

  /** A sequence that decodes got tokens that weren't sampled: they are computed before it decodes again. */
  comesAgain(sequence: Sequence): void {
    sequence.status = 'prefill';
    this.numDecoding--;
  }

  /** Records what completed iterations have written: tokens before `end`. */
  confirm(sequence: Sequence, end: number): void {
    if (this.cache) {
      const partOfPrompt = end === sequence.promptLength;
      const first = Math.floor(sequence.confirmed / this.#blockTokens);
      if (partOfPrompt || Math.floor(end / this.#blockTokens) > first) {
        this.cache.register(sequence, first, end, partOfPrompt);
      }
      for (const { end: edge, place, decoded } of sequence.keeping.filter((one) => one.end <= end)) {
        this.cache.keep(sequence, edge, place);
        if (!decoded) continue;
        if (sequence.keptAt > 0) this.cache.dropState(sequence, sequence.keptAt);
        sequence.keptAt = edge;
      }
      sequence.keeping = sequence.keeping.filter((one) => one.end > end);
    }
    if (sequence.keptBlocks.length > 0 && end >= nth(sequence.keepsAt, 0)) this.prompts?.confirm(sequence);
    sequence.confirmed = end;
    if (end >= sequence.promptLength && sequence.evicted === 0) this.#evict(sequence);
  }

  /** A prompt was compressed: blocks behind what is left of it are free. */
  #evict(sequence: Sequence): void {
    const evicted = sequence.toEvict ?? this.config.eviction?.evictedOf(sequence.promptLength) ?? 0;
    if (evicted === 0) return;
    sequence.evicted = evicted;
    const kept = ceilDiv(sequence.capacity - evicted, this.#blockTokens);
    this.pool.release(sequence.blocks.splice(kept));
    sequence.capacity = kept * this.#blockTokens + evicted;
    this.#compressed.push(sequence);
  }

  /** Frees what a sequence holds, at once, whether it runs or waits. */
  remove(sequence: Sequence): void {
    if (sequence.status === 'waiting') {
      this.pending.remove(sequence);
      this.promptTokens -= sequence.promptLength;
      return;
    }
    // Whoever goes on with it, in a conversation, finds it all.
    const { confirmed, evicted } = sequence;
    if (evicted === 0) {
      this.cache?.register(sequence, Math.floor(confirmed / this.#blockTokens), confirmed, true);
    }
    this.#leave(sequence);
    this.clients.keepSlot(sequence.client);
  }

  #leave(sequence: Sequence): void {
    removeFrom(this.running, sequence);
    if (sequence.status === 'decode') this.numDecoding--;
    this.promptTokens -= sequence.promptLength;
    this.#states?.release(sequence.keeping.map(({ place }) => place));
    sequence.keeping = [];
    sequence.keptAt = 0;
    this.pool.release(sequence.blocks);
    this.prompts?.leave(sequence);
    this.windows?.release(sequence);
    sequence.blocks = [];
    sequence.capacity = 0;
    sequence.evicted = 0;
    sequence.shiftsTo = -1;
    this.#giveSlot(sequence);
    this.clients.gave(sequence.client);
  }

  #match(sequence: Sequence): PrefixMatch {
    if (sequence.outstanding > 0) return NOTHING_CACHED;
    return this.prompts?.match(sequence) ?? this.cache?.match(sequence) ?? NOTHING_CACHED;
  }

  /** Of what was found, blocks that a sequence has in common with others; what prompts are kept in is copied instead. */
  #sharedBlocks({ blocks }: PrefixMatch): readonly number[] {
    return this.prompts ? [] : blocks;
  }
}

/** A sequence's table is written once in an iteration, as it then stands. */
function addTable({ tables }: WorkList, sequence: Sequence): void {
  if (!tables.includes(sequence)) tables.push(sequence);
}

const hasContext = ({ status, computed, target }: Sequence): boolean => status === 'prefill' && computed < target;
