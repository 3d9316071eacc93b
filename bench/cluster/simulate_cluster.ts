/**
 * Room: gateways and replicas on a clock: a trace of prompts that begin alike, and the routing policy of src/cluster/routing beside
 * others. Read simulated_replica.ts next (how long a replica takes), then routers.ts (the policies), conversations.ts (the
 * requests); cluster_study.ts runs several policies on the same requests. docs/cluster.md explains.
 */

import FlatQueue from 'flatqueue';
import { Random } from '../../src/base/random.js';
import type { ReplicaState } from '../../src/cluster/routing/choose_replica.js';
import { ClusterMeter, type ClusterFigures } from './cluster_meter.js';
import type { Arrival, PrefixSource } from './prefix_source.js';
import { makeRouter, type PolicyName, type Router, usesPrefixes } from './routers.js';
import { type ServiceSpeed, StepTime } from './service_time.js';
import { type Job, SimulatedReplica } from './simulated_replica.js';

export interface ClusterOptions {
  readonly policy: PolicyName;
  readonly replicas: number;
  readonly gateways: number;
  /** Requests that arrive; those of conversations that go on count, too. */
  readonly requests: number;
  readonly seed: number;
  readonly slots: number;
  /** Requests that may wait in a replica; one more is refused. */
  readonly queue: number;
  /** Blocks of prompts and answers that a replica keeps. */
  readonly cacheBlocks: number;
  readonly speed: ServiceSpeed;
  /** Seconds between two tellings of a replica, and from a replica to a gateway or back. */
  readonly tellSeconds: number;
  readonly delaySeconds: number;
  /** As chooseReplica takes it; undefined: its default. */
  readonly bound?: number | undefined;
}

/** Replicas that a gateway tries before it answers 429. */
const MOST_TRIES = 3;

interface Queued extends Arrival {
  /** Of the trace, not what follows an answer. */
  readonly isNext: boolean;
}

type Message =
  | { readonly kind: 'job'; readonly job: Job }
  | { readonly kind: 'refused'; readonly job: Job }
  | { readonly kind: 'state'; readonly state: ReplicaState };

export class ClusterRun {
  readonly #replicas: readonly SimulatedReplica[];
  readonly #routers: readonly Router[];
  /** By time: replicas that have something to do (an entry is void where the replica has another plan by then), requests, messages, tellings. */
  readonly #work = new FlatQueue();
  readonly #arrivals = new FlatQueue<Queued>();
  readonly #messages = new FlatQueue<Message>();
  readonly #tellings = new FlatQueue();
  readonly #meter: ClusterMeter;
  readonly #random: Random;
  #arrived = 0;
  #open = 0;

  constructor(
    private readonly source: PrefixSource,
    private readonly options: ClusterOptions,
  ) {
    const { replicas, gateways, slots, queue, cacheBlocks, speed, policy, seed, tellSeconds } = options;
    const shape = { slots, room: slots + queue, cacheBlocks, blockTokens: source.blockTokens };
    const time = new StepTime(speed, slots);
    this.#random = new Random(seed + 0x5eed);
    this.#replicas = Array.from({ length: replicas }, () => new SimulatedReplica(shape, time));
    this.#routers = Array.from({ length: gateways }, (_, gateway) =>
      makeRouter({ policy, replicas, gateway, seed, bound: options.bound }),
    );
    this.#meter = new ClusterMeter(options.requests, this.#replicas);
    for (let replica = 0; replica < replicas; replica++) {
      this.#hear(this.#stateOf(replica));
      // Replicas tell at times of their own.
      this.#tellings.push(replica, this.#random.next() * tellSeconds);
    }
    this.#queueNext();
  }

  get arrived(): number {
    return this.#arrived;
  }

  /** Goes on until so many more requests have arrived; false: all have, and are done. */
  advance(requests: number): boolean {
    const until = this.#arrived + requests;
    while (this.#arrived < until) if (!this.#step()) return false;
    return true;
  }

  get figures(): ClusterFigures {
    return this.#meter.figures;
  }

  #step(): boolean {
    const arrival = this.#arrivals.peekValue() ?? Infinity;
    if (arrival === Infinity && this.#open === 0) return false;
    const work = this.#work.peekValue() ?? Infinity;
    const message = this.#messages.peekValue() ?? Infinity;
    const telling = this.#tellings.peekValue()!;
    const now = Math.min(arrival, work, message, telling);
    if (now === work) this.#fire(this.#work.pop()!, now);
    else if (now === message) this.#deliver(this.#messages.pop()!, now);
    else if (now === telling) this.#tell(this.#tellings.pop()!, now);
    else this.#arrive(this.#arrivals.pop()!);
    return true;
  }

  /** The next request of the trace is asked for when the one before it comes. */
  #queueNext(): void {
    const arrival = this.source.next();
    if (arrival) this.#arrivals.push({ ...arrival, isNext: true }, arrival.at);
  }

  #arrive({ at, request, isNext }: Queued): void {
    if (isNext) this.#queueNext();
    const job: Job = {
      request,
      arrivedAt: at,
      index: this.#arrived++,
      gateway: this.#random.integer(this.options.gateways),
      refusedBy: undefined,
      replica: -1,
      cachedTokens: 0,
      leftTokens: 0,
    };
    if (this.#arrived === this.options.requests) this.#arrivals.clear();
    this.#open++;
    this.#meter.arrived(job, at);
    this.#send(job, at);
  }

  #send(job: Job, now: number): void {
    const router = this.#routers[job.gateway]!;
    const tries = job.refusedBy?.size ?? 0;
    const replica = tries < MOST_TRIES ? router.choose(job.request, job.refusedBy) : undefined;
    if (replica === undefined) {
      this.#open--;
      this.#meter.refused(job);
      return;
    }
    job.replica = replica;
    router.sent(replica, job.request);
    this.#messages.push({ kind: 'job', job }, now + this.options.delaySeconds);
  }

  #deliver(message: Message, now: number): void {
    if (message.kind === 'state') {
      this.#hear(message.state);
      return;
    }
    const { job } = message;
    if (message.kind === 'refused') {
      this.#routers[job.gateway]!.ended(job.replica);
      (job.refusedBy ??= new Set()).add(job.replica);
      this.#send(job, now);
      return;
    }
    const replica = this.#replicas[job.replica]!;
    if (replica.take(job, now)) this.#work.push(job.replica, replica.nextAt);
    else this.#messages.push({ kind: 'refused', job }, now + this.options.delaySeconds);
  }

  #fire(index: number, now: number): void {
    const replica = this.#replicas[index]!;
    if (replica.nextAt !== now) return;
    const { first, done } = replica.fire();
    if (replica.nextAt < Infinity) this.#work.push(index, replica.nextAt);
    if (first) this.#meter.firstToken(first, now + this.options.delaySeconds);
    if (done) this.#end(done, now + this.options.delaySeconds);
  }

  #end(job: Job, now: number): void {
    this.#open--;
    this.#meter.done(job, now);
    this.#routers[job.gateway]!.ended(job.replica);
    if (this.#arrived >= this.options.requests) return;
    const next = this.source.after(job.request, now);
    if (next) this.#arrivals.push({ ...next, isNext: false }, next.at);
  }

  #tell(index: number, now: number): void {
    this.#tellings.push(index, now + this.options.tellSeconds);
    this.#messages.push({ kind: 'state', state: this.#stateOf(index) }, now + this.options.delaySeconds);
    this.#meter.sample(now);
  }

  #stateOf(index: number): ReplicaState {
    const { slots, queue, policy } = this.options;
    const { running, waiting, cache } = this.#replicas[index]!;
    const prefixes = usesPrefixes(policy) ? cache.filter() : undefined;
    return { name: String(index), running, waiting, slots, room: slots + queue, draining: false, prefixes };
  }

  #hear(state: ReplicaState): void {
    for (const router of this.#routers) router.tell(state);
  }
}
