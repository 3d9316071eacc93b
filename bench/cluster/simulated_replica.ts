import FlatQueue from 'flatqueue';
import { PrefixRecord } from '../../src/cluster/routing/prefixes.js';
import { type PrefixRequest, reusable } from './prefix_source.js';
import type { StepTime } from './service_time.js';

/** A request on its way through the cluster. */
export interface Job {
  readonly request: PrefixRequest;
  /** Its number in the trace, by arrival. */
  readonly index: number;
  readonly gateway: number;
  readonly arrivedAt: number;
  /** Replicas that refused it. */
  refusedBy: Set<number> | undefined;
  replica: number;
  /** Prompt tokens that the cache had, and that are still to be computed. */
  cachedTokens: number;
  leftTokens: number;
}

export interface ReplicaShape {
  readonly slots: number;
  /** Slots and places in the queue. */
  readonly room: number;
  readonly cacheBlocks: number;
  readonly blockTokens: number;
}

/** What happened in a replica: a first token, a last token, or both of the same job. */
export interface ReplicaEvent {
  readonly first: Job | undefined;
  readonly done: Job | undefined;
}

/**
 * A replica on the clock. Requests take slots in order of arrival; prompts are computed one after the other, chunk by chunk, and
 * generated rows share their steps. Between events all goes at constant speed, so that nothing is computed step by step: every
 * generating request gets the same tokens in the same time, and one counter of these tokens says when each is done.
 */
export class SimulatedReplica {
  readonly cache: PrefixRecord;
  /** When the next thing happens; Infinity: nothing does. */
  nextAt = Infinity;
  #busySeconds = 0;
  readonly #waiting: Job[] = [];
  readonly #prompts: Job[] = [];
  /** By the counter's value at its last token. */
  readonly #generating = new FlatQueue<Job>();
  /** Tokens that a request would have by now that generates from the beginning. */
  #tokens = 0;
  #updatedAt = 0;

  constructor(
    private readonly shape: ReplicaShape,
    private readonly time: StepTime,
  ) {
    this.cache = new PrefixRecord(shape.cacheBlocks);
  }

  get running(): number {
    return this.#prompts.length + this.#generating.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Seconds until now in which it had something to compute. */
  busySeconds(now: number): number {
    return this.#busySeconds + (this.running > 0 ? now - this.#updatedAt : 0);
  }

  /** False: it is full. */
  take(job: Job, now: number): boolean {
    if (this.running + this.waiting >= this.shape.room) return false;
    this.#advance(now);
    this.#waiting.push(job);
    this.#fillSlots();
    this.#plan(now);
    return true;
  }

  /** What happens at `nextAt`. */
  fire(): ReplicaEvent {
    const now = this.nextAt;
    const isPrompt = this.#promptEnd() <= this.#lastTokenEnd();
    this.#advance(now);
    const event = isPrompt ? this.#endPrompt() : this.#endGeneration();
    this.#fillSlots();
    this.#plan(now);
    return event;
  }

  #endPrompt(): ReplicaEvent {
    const job = this.#prompts.shift()!;
    this.cache.use(job.request.prefix);
    const more = job.request.outputTokens - 1;
    if (more === 0) return { first: job, done: this.#ended(job) };
    this.#generating.push(job, this.#tokens + more);
    return { first: job, done: undefined };
  }

  #endGeneration(): ReplicaEvent {
    this.#tokens = this.#generating.peekValue()!;
    return { first: undefined, done: this.#ended(this.#generating.pop()!) };
  }

  #ended(job: Job): Job {
    this.cache.use(job.request.whole);
    // Counters that grow for hours lose digits.
    if (this.#generating.length === 0) this.#tokens = 0;
    return job;
  }

  #fillSlots(): void {
    while (this.#waiting.length > 0 && this.running < this.shape.slots) {
      const job = this.#waiting.shift()!;
      const { prefix, inputTokens } = job.request;
      job.cachedTokens = reusable(this.cache.matched(prefix), this.shape.blockTokens, inputTokens);
      job.leftTokens = inputTokens - job.cachedTokens;
      this.#prompts.push(job);
    }
  }

  #advance(now: number): void {
    const seconds = now - this.#updatedAt;
    this.#updatedAt = now;
    if (this.running === 0) return;
    this.#busySeconds += seconds;
    const steps = seconds / this.#stepSeconds();
    if (this.#prompts.length > 0) this.#prompts[0]!.leftTokens -= steps * this.time.chunkTokens;
    if (this.#generating.length > 0) this.#tokens += steps;
  }

  #stepSeconds(): number {
    const rows = this.#generating.length;
    return this.#prompts.length > 0 ? this.time.withPrefill(rows) : this.time.decode(rows);
  }

  /** Steps from the last update on. */
  #promptEnd(): number {
    return this.#prompts.length > 0 ? Math.max(0, this.#prompts[0]!.leftTokens) / this.time.chunkTokens : Infinity;
  }

  #lastTokenEnd(): number {
    return this.#generating.length > 0 ? Math.max(0, this.#generating.peekValue()! - this.#tokens) : Infinity;
  }

  #plan(now: number): void {
    const steps = Math.min(this.#promptEnd(), this.#lastTokenEnd());
    this.nextAt = steps === Infinity ? Infinity : now + steps * this.#stepSeconds();
  }
}
