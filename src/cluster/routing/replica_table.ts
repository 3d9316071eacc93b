import {
  BOUND,
  type Choice,
  chooseReplica,
  type ReplicaState,
  type ReplicaView,
  type RoutedRequest,
} from './choose_replica.js';
import { hashOfText } from './prefix_hashes.js';

export interface ReplicaTableOptions {
  /** As chooseReplica takes it. */
  readonly bound?: number;
  /** A replica that told nothing for longer counts as gone; default 2. */
  readonly staleSeconds?: number;
}

interface Row extends ReplicaView {
  running: number;
  waiting: number;
  slots: number;
  room: number;
  draining: boolean;
  prefixes: ReplicaState['prefixes'];
  /** The filter is this table's own, and may be added to. */
  ownFilter: boolean;
  toldAt: number;
}

/**
 * A gateway's picture of the replicas: what each told last, and what the gateway itself has sent there and seen end since. Other
 * gateways' requests are seen when the replica tells of them. Times are seconds of any one clock, given by the caller.
 */
export class ReplicaTable {
  readonly #rows = new Map<string, Row>();
  /** The same, made anew when replicas come or go. */
  #list: readonly Row[] | undefined;
  readonly #bound: number;
  readonly #staleSeconds: number;

  constructor({ bound = BOUND, staleSeconds = 2 }: ReplicaTableOptions = {}) {
    this.#bound = bound;
    this.#staleSeconds = staleSeconds;
  }

  /** A replica's state has come. */
  tell(state: ReplicaState, now: number): void {
    const { name, running, waiting, slots, room, draining, prefixes } = state;
    const told = { running, waiting, slots, room, draining, prefixes, ownFilter: false, toldAt: now };
    const row = this.#rows.get(name);
    if (row) {
      Object.assign(row, told);
      return;
    }
    this.#rows.set(name, { name, key: hashOfText(name), ...told });
    this.#list = undefined;
  }

  /** A replica has left, or its connection broke. */
  leave(name: string): void {
    if (this.#rows.delete(name)) this.#list = undefined;
  }

  /** Those that told something lately, draining ones included; those that didn't are forgotten. */
  there(now: number): readonly ReplicaView[] {
    const list = (this.#list ??= [...this.#rows.values()]);
    const stale = list.filter(({ toldAt }) => now - toldAt > this.#staleSeconds);
    if (stale.length === 0) return list;
    for (const { name } of stale) this.leave(name);
    return this.there(now);
  }

  /** @param except replicas that failed this request already */
  choose(request: RoutedRequest, now: number, except?: ReadonlySet<string>): Choice {
    const there = this.there(now);
    const asked = except && except.size > 0 ? there.filter(({ name }) => !except.has(name)) : there;
    return chooseReplica(request, asked, this.#bound);
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
