import { listIn, valueIn } from '../../base/lists.js';
import { DecayingMean, LinearFit } from './adp/fits.js';
import type { Sequence } from './sequence.js';

/**
 * Priorities and fairness. A client's requests are in order of virtual arrival: a point of priority counts as having come
 * `agingIterations` iterations earlier. Requests age at the same rate, so the order of two never changes, and a request waits
 * only for those of its client that came before it or at most `(their priority - its own) * agingIterations` iterations after it: none
 * starves, however many urgent ones keep coming. Equal virtual arrivals go by submission. Among clients it goes in rounds
 * (`nextInTurn`).
 */
export const virtualArrival = (iteration: number, priority: number, agingIterations: number): number =>
  iteration - priority * agingIterations;

/** Who asks, as the scheduler sees it, while a request of its is unfinished. */
export class Client {
  unfinished = 0;
  /** Slots that it has, of all ranks. */
  running = 0;
  /** When a chunk of a prompt of its was planned last. */
  computed = 0;
  /** While others have rows, its prompts rest up to this iteration. */
  promptsRest = 0;

  /** @param since when it came, or gave up a slot last; of this and of `computed` only the order counts */
  constructor(
    readonly name = '',
    public since = 0,
  ) {}
}

/** A slot that was given up, and isn't at once given to whoever would have to give it back if it were asked for again. */
interface KeptSlot {
  readonly until: number;
  /** Slots that its client had left. */
  readonly running: number;
}

/** Iterations that a slot is kept for: who asks one thing after the other comes back in that time. */
const KEPT_ITERATIONS = 32;
/** So soon is it back. */
const BACK_ITERATIONS = 2;
/** Iterations: long enough for two trials, short enough to forget the slow first ones. */
const FIT_MEMORY = 96;
const FIT_ENOUGH = 4;
/** Iterations after which others of a client's sequences rest. */
const SPELL_ITERATIONS = 16;
/** In one of so many iterations nobody rests, and in two all that may: what more rows take, and fewer, is known only from such. */
const TRIED_ITERATIONS = 64;
/** Decode rows of one client beside others may cost together this share of what an iteration costs in any case. */
const FREE_SHARE = 0.25;
/** With several clients an iteration's prompts take as long as so many iterations of its decode rows alone... */
const CHUNK_ITERATIONS = 4;
/** ...and their client's next ones rest so many times as long while others have rows. */
const PROMPT_REST = 2;
/** Rows of such prompts: at least, and while nothing is known of what they cost. */
const CHUNK_ROWS = { least: 16, unknown: 128 };

/** Tokens that an answer which was sent back goes on for at least before it makes room again: less would be spent on computing it again. */
const KEPT_TOKENS = 16;

export class Clients {
  readonly #known = new Map<string, Client>();
  readonly #times = new LinearFit(FIT_MEMORY, 'proportional');
  #kept: KeptSlot[] = [];
  #moment = 0;
  /** What a row of a prompt costs, in seconds. */
  readonly #promptRows = new DecayingMean(FIT_MEMORY);
  /** Those of several with rows in the planned iteration. */
  readonly #active = new Set<Client>();
  /** The iteration when one had nothing left to do, where none has come since. */
  #leftAt = -Infinity;
  #severalAt = -Infinity;
  /** Decode rows of the planned iteration, of the rank with most. */
  #decodeRows = 1;
  iteration = 0;

  /** With one alone nothing here changes anything. */
  get several(): boolean {
    return this.#known.size > 1;
  }

  /** One has just left, and none has come since: who asks one thing after the other is back in the iteration after next. */
  get #mayComeBack(): boolean {
    return this.iteration <= this.#leftAt + BACK_ITERATIONS;
  }

  /** A moment after all before it. */
  now(): number {
    return ++this.#moment;
  }

  join(name: string): Client {
    const client = valueIn(this.#known, name, () => new Client(name, this.now()));
    client.unfinished++;
    this.#leftAt = -Infinity;
    return client;
  }

  leave(client: Client): void {
    if (--client.unfinished > 0) return;
    this.#known.delete(client.name);
    this.#leftAt = this.iteration;
  }

  took(client: Client): void {
    // That of the one that had most of those which it may have.
    if (this.#kept.length > 0) {
      const open = this.#kept.filter(({ running }) => client.running <= running);
      const most = open.reduce<KeptSlot | undefined>((a, b) => (a && a.running >= b.running ? a : b), undefined);
      this.#kept = this.#kept.filter((slot) => slot !== most);
    }
    client.running++;
  }

  gave(client: Client): void {
    client.running--;
    client.since = this.now();
  }

  /** An answer that had a slot is over. */
  keepSlot({ running }: Client): void {
    if (this.several) this.#kept.push({ until: this.iteration + KEPT_ITERATIONS, running });
  }

  mayTake({ running }: Client, free: number): boolean {
    if (this.#kept.length === 0) return true;
    this.#kept = this.#kept.filter(({ until }) => until > this.iteration);
    return free > this.#kept.filter((slot) => running > slot.running).length;
  }

  /**
   * An iteration took so long.
   * @param rows decode rows of the rank with most
   * @param promptRows rows of prompts, likewise
   */
  observe(rows: number, promptRows: number, seconds: number): void {
    if (promptRows === 0) this.#times.add(rows, seconds);
    else this.#promptRows.add(Math.max(0, seconds - this.#secondsOf(rows)), promptRows);
  }

  /** Of an iteration of so many decode rows; 0 while nothing is known. */
  #secondsOf(rows: number): number {
    const { intercept, slope } = this.#times.line;
    return intercept + slope * rows;
  }

  /** Decode rows of the next iteration, by rank. Its prompts are planned next. */
  planned(decodes: readonly (readonly Sequence[])[]): void {
    this.#decodeRows = Math.max(1, ...decodes.map(({ length }) => length));
    this.#active.clear();
    if (!this.several) return;
    this.#severalAt = this.iteration;
    for (const rows of decodes) for (const { client } of rows) this.#active.add(client);
  }

  /** The planned iteration's seconds without prompts; 0 while that isn't known. */
  get #decodeSeconds(): number {
    return this.#times.weight < FIT_ENOUGH ? 0 : this.#secondsOf(this.#decodeRows);
  }

  /** Rows of prompts that the planned iteration may have where there are several clients, or were until just now. */
  get promptRows(): number {
    if (this.iteration >= this.#severalAt + KEPT_ITERATIONS) return Infinity;
    const [{ mean }, seconds] = [this.#promptRows, this.#decodeSeconds];
    if (mean === undefined || seconds === 0) return CHUNK_ROWS.unknown;
    return Math.max(CHUNK_ROWS.least, Math.floor((CHUNK_ITERATIONS * seconds) / mean));
  }

  /** Whether a client's prompts rest in the planned iteration: it has had its part of the time, and others have rows. */
  promptsRest(client: Client): boolean {
    return this.hadItsPart(client) && this.#active.size > Number(this.#active.has(client));
  }

  /** The lowest one's prompts are next. */
  promptTurn(client: Client): number {
    return client.computed + (this.hadItsPart(client) ? 2 ** 50 : 0);
  }

  hadItsPart({ promptsRest }: Client): boolean {
    return promptsRest >= this.iteration + 1;
  }

  /** So many rows of a client's prompt are planned. */
  computes(client: Client, rows: number): void {
    client.computed = this.now();
    this.#active.add(client);
    const [{ mean }, seconds] = [this.#promptRows, this.#decodeSeconds];
    const iterations = mean === undefined || seconds === 0 ? rows / CHUNK_ROWS.unknown : (rows * mean) / seconds;
    client.promptsRest = Math.max(client.promptsRest, this.iteration) + PROMPT_REST * iterations;
  }

  /** Rows that cost together a share of what an iteration costs in any case; 0 while nothing is known. */
  get #freeRows(): number {
    if (this.#times.weight < FIT_ENOUGH) return 0;
    const { intercept, slope } = this.#times.line;
    return slope > 0 ? Math.floor((FREE_SHARE * intercept) / slope) : Infinity;
  }

  /**
   * Sequences that have no row in this iteration. Where rows cost time no client has more of them than the one with fewest, and those
   * that cost nothing much; a client's sequences take turns. So of K clients each goes on at least 1/K as quickly as alone.
   * @param running of one client alone nobody rests, except for a moment when another has gone
   */
  resting(running: readonly Sequence[]): ReadonlySet<Sequence> | undefined {
    if (!this.several && !this.#mayComeBack) return undefined;
    const trial = this.iteration % TRIED_ITERATIONS;
    const free = trial >> 1 === TRIED_ITERATIONS / 4 ? 0 : this.#freeRows;
    if (free === Infinity || trial === 0) return undefined;
    const rows = new Map<Client, Sequence[]>();
    for (const sequence of running) {
      const own = listIn(rows, sequence.client);
      if (sequence.status !== 'decode' || sequence.sampled < sequence.maxTokens) own.push(sequence);
    }
    // Whose last tokens are under way may come back, too.
    const counts = [...rows.values()].map(({ length }) => Math.max(1, length));
    if (this.#mayComeBack) counts.push(1);
    if (counts.length < 2) return undefined;
    const most = free + Math.min(...counts);
    const resting = new Set<Sequence>();
    const changes = this.iteration % SPELL_ITERATIONS === 1;
    const waits = (sequence: Sequence): number => Number(!changes && sequence.resting);
    for (const own of rows.values()) {
      if (own.length <= most) continue;
      for (const sequence of own.toSorted((a, b) => waits(a) - waits(b) || a.rowAt - b.rowAt).slice(most))
        resting.add(sequence);
    }
    return resting;
  }
}

/**
 * Of each client's first, the one whose turn it is: of the client with fewest slots, and of those with as many the one that has waited
 * longest since it had one. Whose priority is below that of the first in order waits.
 * @param firsts one of each client
 * @param given slots that clients are about to have
 */
export function nextInTurn(firsts: readonly Sequence[], given?: ReadonlyMap<Client, number>): Sequence | undefined {
  if (firsts.length < 2) return firsts[0];
  const { priority } = firsts.reduce((a, b) => (inOrder(a, b) <= 0 ? a : b));
  const slots = ({ client }: Sequence): number => client.running + (given?.get(client) ?? 0);
  let next: Sequence | undefined;
  for (const first of firsts) {
    if (first.priority < priority) continue;
    const before = next
      ? slots(first) - slots(next) || first.client.since - next.client.since || inOrder(first, next)
      : -1;
    if (before < 0) next = first;
  }
  return next;
}

/** Of one client's. */
export const inOrder = (a: Sequence, b: Sequence): number => a.order - b.order || a.ordinal - b.ordinal;

/** Running sequences with clients in turn: every client's first, then every one's second, and so on. */
export function byTurns(running: readonly Sequence[]): readonly Sequence[] {
  const counts = new Map<Client, number>();
  const places = running.map((sequence) => {
    const place = counts.get(sequence.client) ?? 0;
    counts.set(sequence.client, place + 1);
    return { sequence, place };
  });
  if (counts.size < 2) return running;
  return places.toSorted((a, b) => a.place - b.place).map(({ sequence }) => sequence);
}

/** One that only waits for its last token is left alone: it frees its slot and its blocks next. */
const goesOn = ({ sampled, maxTokens }: Sequence): boolean => sampled < maxTokens;

/**
 * Whom a rank sends back when its blocks run out: the last of its running sequences, which have clients in turn, so that the first one
 * always gets on and every sequence becomes the first in time.
 */
export const victimOf = (running: readonly Sequence[]): Sequence | undefined => running.findLast(goesOn);

/**
 * Whom a rank sends back for a client that waits with fewer slots: the last in order of the client with most, if that has more than the
 * one that waits would have. None of a higher priority, and none that has hardly gone on since it was sent back.
 */
export function victimFor(next: Sequence, running: readonly Sequence[]): Sequence | undefined {
  let victim: Sequence | undefined;
  for (const sequence of running) {
    const { client, priority, sampled, sampledBefore, preemptions } = sequence;
    if (client.running < next.client.running + 2 || priority > next.priority || !goesOn(sequence)) continue;
    if (preemptions > 0 && sampled - sampledBefore < KEPT_TOKENS) continue;
    if (!victim || client.running >= victim.client.running) victim = sequence;
  }
  return victim;
}
