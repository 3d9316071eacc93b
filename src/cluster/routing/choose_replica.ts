/**
 * Room: which replica takes a request: the one policy of gateways and of the simulator. Pure: no clock, no network.
 * A gateway keeps a ReplicaTable and asks it; prefixes.ts is how a replica says what it has cached.
 */

import { hashOfText, mixed, type PrefixFilter } from './prefixes.js';

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

interface Chosen {
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
 * for one that is cached to a half. On the clock first tokens come soonest with 1, of 0.1 to 4 (docs/cluster.md).
 */
export const BOUND = 1;

/** Peers of which the least loaded takes a request. */
const PEERS = 3;

/**
 * 1. Whoever drains, is full or has more load than the least loaded and the bound together is left out, load being
 *    (running + waiting) / slots.
 * 2. The best of the others has the least `load - bound * share`, share being the part of the prefix that is cached there. So a
 *    cached prefix wins up to the bound; without one the least loaded does.
 * 3. Of those that have as much of the prefix cached as the best, a hash of request and name picks three, and the least loaded of
 *    them takes it: were it the best itself, all gateways would send what comes between two tellings to the same one.
 *
 * A session has a replica of its own, the same for every gateway that sees the same names. It counts as having a block more of the
 * prefix than it has, and where it is the best, it takes the request.
 *
 * Ties go by the hash, so that the order of `replicas` doesn't matter.
 */
export function chooseReplica(request: RoutedRequest, replicas: readonly ReplicaView[], bound: number = BOUND): Choice {
  let there = 0;
  let least = Infinity;
  for (const replica of replicas) {
    if (replica.draining) continue;
    there++;
    if (hasRoom(replica)) least = Math.min(least, loadOf(replica));
  }
  if (least === Infinity) return there === 0 ? 'none' : 'full';
  const reach = replicas.filter((each) => !each.draining && hasRoom(each) && loadOf(each) <= least + bound);
  const search = new Search(request, replicas, bound);
  const best = search.best(reach);
  const chosen = best === search.home ? best : search.ofPeers(best, reach);
  return { replica: chosen.name, cachedBlocks: cachedIn(chosen, request.prefix) };
}

const hasRoom = ({ running, waiting, room }: ReplicaView): boolean => running + waiting < room;
const loadOf = ({ running, waiting, slots }: ReplicaView): number => (running + waiting) / slots;
const cachedIn = ({ prefixes }: ReplicaView, prefix: Uint32Array): number => prefixes?.matched(prefix) ?? 0;

/** Against rounding: shares are compared in blocks. */
const ROUNDING = 1e-9;

class Search {
  readonly home: ReplicaView | undefined;
  readonly #prefix: Uint32Array;
  /** What ties go by. */
  readonly #key: number;

  constructor(
    { prefix, session }: RoutedRequest,
    replicas: readonly ReplicaView[],
    private readonly bound: number,
  ) {
    this.#prefix = prefix;
    this.#key = session === undefined ? (prefix.at(-1) ?? 0) : hashOfText(session);
    // Rendezvous hashing: when a replica comes or goes, only its own sessions move.
    if (session === undefined) return;
    const [first, ...others] = replicas.filter(({ draining }) => !draining);
    this.home = first && others.reduce((home, each) => (this.#isBefore(each, home) ? each : home), first);
  }

  best(replicas: readonly ReplicaView[]): ReplicaView {
    let best = replicas[0]!;
    let least = this.#score(best);
    for (const replica of replicas) {
      if (!this.#mayReach(replica, least)) continue;
      const score = this.#score(replica);
      if (score > least || (score === least && !this.#isBefore(replica, best))) continue;
      best = replica;
      least = score;
    }
    return best;
  }

  ofPeers(best: ReplicaView, replicas: readonly ReplicaView[]): ReplicaView {
    const cached = cachedIn(best, this.#prefix);
    const alike = replicas.filter((each) => this.#has(each, cached) && cachedIn(each, this.#prefix) >= cached);
    const picked = alike.toSorted((a, b) => (this.#isBefore(a, b) ? -1 : 1)).slice(0, PEERS);
    return picked.reduce((least, each) => (loadOf(each) < loadOf(least) ? each : least));
  }

  #score(replica: ReplicaView): number {
    const blocks = this.#prefix.length;
    const own = replica === this.home ? 1 : 0;
    const share = blocks === 0 ? own : Math.min(blocks, cachedIn(replica, this.#prefix) + own) / blocks;
    return loadOf(replica) - this.bound * share;
  }

  /** Whether the score may be as good as this: mostly one look at the block without which it can't be says no. */
  #mayReach(replica: ReplicaView, score: number): boolean {
    if (this.bound === 0 || replica === this.home) return true;
    const blocks = this.#prefix.length;
    const needed = Math.ceil(((loadOf(replica) - score) / this.bound) * blocks - ROUNDING);
    return needed <= blocks && this.#has(replica, needed);
  }

  /** Whether the last of so many blocks is there; the ones before it mostly are, then. */
  #has({ prefixes }: ReplicaView, blocks: number): boolean {
    return blocks <= 0 || prefixes?.has(this.#prefix[blocks - 1]!) === true;
  }

  #isBefore(one: ReplicaView, other: ReplicaView): boolean {
    const [weight, than] = [mixed(one.key ^ this.#key), mixed(other.key ^ this.#key)];
    return weight > than || (weight === than && one.name < other.name);
  }
}

type Row = { -readonly [Field in keyof ReplicaView]: ReplicaView[Field] } & {
  /** The filter is this table's own, and may be added to. */
  ownFilter: boolean;
};

/**
 * A gateway's picture of the replicas: what each told last, and what the gateway itself has sent there and seen end since. Other
 * gateways' requests are seen when the replica tells of them. Who says nothing any more is the caller's to notice.
 */
export class ReplicaTable {
  readonly #rows = new Map<string, Row>();
  /** The same, made anew when replicas come or go. */
  #list: readonly Row[] | undefined;

  /** @param bound as chooseReplica takes it */
  constructor(private readonly bound: number = BOUND) {}

  tell(state: ReplicaState): void {
    const { name } = state;
    const told = { prefixes: undefined, ...state, ownFilter: false };
    const row = this.#rows.get(name);
    if (row) return void Object.assign(row, told);
    this.#rows.set(name, { key: hashOfText(name), ...told });
    this.#list = undefined;
  }

  leave(name: string): void {
    if (this.#rows.delete(name)) this.#list = undefined;
  }

  /** Draining ones included. */
  get there(): readonly ReplicaView[] {
    return (this.#list ??= [...this.#rows.values()]);
  }

  /** @param except replicas that failed this request already */
  choose(request: RoutedRequest, except?: ReadonlySet<string>): Choice {
    const { there } = this;
    const asked = except && except.size > 0 ? there.filter(({ name }) => !except.has(name)) : there;
    return chooseReplica(request, asked, this.bound);
  }

  /** This gateway sends a request there: it counts, and its prefix will be cached, before the replica tells so. */
  sent(name: string, { prefix }: RoutedRequest): void {
    const row = this.#rows.get(name);
    if (!row) return;
    row.waiting++;
    if (!row.prefixes) return;
    if (!row.ownFilter) row.prefixes = row.prefixes.copy();
    row.ownFilter = true;
    for (const hash of prefix) row.prefixes.add(hash);
  }

  /** A request that this gateway sent there has ended, however it did. */
  ended(name: string): void {
    const row = this.#rows.get(name);
    if (!row) return;
    if (row.waiting > 0) row.waiting--;
    else if (row.running > 0) row.running--;
  }
}
