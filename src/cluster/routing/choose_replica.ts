/**
 * Room: which replica takes a request: the one policy of gateways and of the simulator. Pure: no clock, no network.
 * A gateway keeps a ReplicaTable (replica_table.ts) and asks it; prefix_hashes.ts and prefix_filter.ts are how a
 * replica says what it has cached.
 */

import { hashOfText, mixed } from './prefix_hashes.js';
import type { PrefixFilter } from './prefix_filter.js';

/** What a replica tells of itself, every half second or so. */
export interface ReplicaState {
  /** Unique in the cluster. */
  readonly name: string;
  /** Requests that are computed, and that wait for a slot. */
  readonly running: number;
  readonly waiting: number;
  /** Requests that it computes side by side, at least 1. */
  readonly slots: number;
  /** Requests that it takes at once: slots and places in its queue. */
  readonly room: number;
  /** It ends what it has and takes nothing new. */
  readonly draining: boolean;
  /** What it has cached; undefined: nothing, or it doesn't say. */
  readonly prefixes?: PrefixFilter | undefined;
}

/** What the policy looks at in a request. */
export interface RoutedRequest {
  /** As prefixHashes makes them. */
  readonly prefix: Uint32Array;
  /** Requests of one session go to one replica while that is there and not overloaded. */
  readonly session?: string | undefined;
}

export interface Chosen {
  readonly replica: string;
  /** Blocks of the request's prefix that it has cached as far as is known. */
  readonly cachedBlocks: number;
}

/** 'full': all that could take it have no room, say 429. 'none': nobody is there, or all are draining, say 503. */
export type Choice = Chosen | 'full' | 'none';

/** A state as it is thought to be now. */
export interface ReplicaView extends ReplicaState {
  /** hashOfText(name), kept because it is asked for in every choice. */
  readonly key: number;
}

/**
 * How much more load a cached prefix is worth, in requests per slot: a whole batch for a prefix that is cached whole, half a batch
 * for one that is cached to a half.
 */
export const BOUND = 1;

/**
 * Picks the replica with the least `load - bound * share`, where load is (running + waiting) / slots and share the part of the
 * prefix that is cached there. So a cached prefix wins, but never over a replica whose load is less by more than the bound; without
 * one the least loaded wins. A session's own replica (the same for every gateway that sees the same names) counts as one that has
 * all of the prefix. Ties go by a hash of request and name: every gateway decides alike, and different requests differently.
 */
export function chooseReplica(request: RoutedRequest, replicas: readonly ReplicaView[], bound: number = BOUND): Choice {
  let there = 0;
  let least: ReplicaView | undefined;
  for (const replica of replicas) {
    if (replica.draining) continue;
    there++;
    if (hasRoom(replica) && (!least || loadOf(replica) < loadOf(least))) least = replica;
  }
  if (!least) return there === 0 ? 'none' : 'full';
  return new Search(request, replicas, bound).from(least);
}

const hasRoom = ({ running, waiting, room }: ReplicaView): boolean => running + waiting < room;
const loadOf = ({ running, waiting, slots }: ReplicaView): number => (running + waiting) / slots;

/** Against rounding: shares are compared in blocks. */
const ROUNDING = 1e-9;

class Search {
  readonly #prefix: Uint32Array;
  /** What ties go by. */
  readonly #key: number;
  readonly #home: ReplicaView | undefined;
  #best: ReplicaView | undefined;
  #score = Infinity;
  #weight = 0;
  #cached = 0;

  constructor(
    { prefix, session }: RoutedRequest,
    private readonly replicas: readonly ReplicaView[],
    private readonly bound: number,
  ) {
    this.#prefix = prefix;
    this.#key = session === undefined ? (prefix.at(-1) ?? 0) : hashOfText(session);
    this.#home = session === undefined ? undefined : homeOf(this.#key, replicas);
  }

  from(least: ReplicaView): Chosen {
    // The first one decides how much of the prefix others must have to be looked at.
    this.#offer(least);
    const most = loadOf(least) + this.bound;
    for (const replica of this.replicas) {
      if (replica !== least && !replica.draining && hasRoom(replica) && loadOf(replica) <= most) this.#offer(replica);
    }
    return { replica: this.#best!.name, cachedBlocks: this.#cached };
  }

  #offer(replica: ReplicaView): void {
    const blocks = this.#prefix.length;
    const load = loadOf(replica);
    const isHome = replica === this.#home;
    // Blocks without which it can't be as good as the best so far: mostly one look says that it hasn't got them.
    const needed = isHome || this.bound === 0 ? 0 : Math.ceil(((load - this.#score) / this.bound) * blocks - ROUNDING);
    if (needed > blocks) return;
    if (needed > 0 && !replica.prefixes?.has(this.#prefix[needed - 1]!)) return;
    const cached = replica.prefixes?.matched(this.#prefix) ?? 0;
    const share = isHome ? 1 : blocks === 0 ? 0 : cached / blocks;
    const score = load - this.bound * share;
    const weight = mixed(replica.key ^ this.#key);
    if (score > this.#score || (score === this.#score && !this.#winsTie(replica, weight))) return;
    this.#best = replica;
    this.#score = score;
    this.#weight = weight;
    this.#cached = cached;
  }

  #winsTie(replica: ReplicaView, weight: number): boolean {
    return weight > this.#weight || (weight === this.#weight && replica.name < this.#best!.name);
  }
}

/** The replica of a session by rendezvous hashing: when one comes or goes, only sessions of that one move. */
function homeOf(session: number, replicas: readonly ReplicaView[]): ReplicaView | undefined {
  let home: ReplicaView | undefined;
  let most = -1;
  for (const replica of replicas) {
    if (replica.draining) continue;
    const weight = mixed(replica.key ^ session);
    if (weight < most || (weight === most && home!.name <= replica.name)) continue;
    home = replica;
    most = weight;
  }
  return home;
}
