import { Random } from '../../src/base/random.js';
import { sum } from '../../src/base/lists.js';
import { type ReplicaState, ReplicaTable, type RoutedRequest } from '../../src/cluster/routing/choose_replica.js';
import type { PrefixRequest } from './prefix_source.js';

export const POLICIES = ['random', 'round_robin', 'least_loaded', 'two_choices', 'prefix', 'session'] as const;
export type PolicyName = (typeof POLICIES)[number];

/** Policies that need to be told what replicas have cached. */
export const usesPrefixes = (policy: PolicyName): boolean => policy === 'prefix' || policy === 'session';

/** A gateway's way to choose. Replicas are numbers, and bear them as names. */
export interface Router {
  /** Undefined: all that it knows of are full. */
  choose(request: PrefixRequest, except: ReadonlySet<number> | undefined): number | undefined;
  tell(state: ReplicaState): void;
  sent(replica: number, request: PrefixRequest): void;
  ended(replica: number): void;
}

export interface RouterOptions {
  readonly policy: PolicyName;
  readonly replicas: number;
  readonly gateway: number;
  readonly seed: number;
  /** As chooseReplica takes it. */
  readonly bound: number | undefined;
}

export function makeRouter(options: RouterOptions): Router {
  const random = new Random(options.seed * 65_537 + options.gateway);
  switch (options.policy) {
    case 'random':
      return new Blind(options.replicas, () => random.next());
    case 'round_robin': {
      let turn = random.integer(options.replicas);
      return new Blind(options.replicas, () => (turn++ % options.replicas) / options.replicas);
    }
    case 'two_choices':
      return new TwoChoices(random);
    case 'least_loaded':
      return new ByTable(new ReplicaTable(0), false);
    default:
      return new ByTable(new ReplicaTable(options.bound), options.policy === 'session');
  }
}

/** Looks at nothing. `draw` gives numbers in [0, 1). */
class Blind implements Router {
  constructor(
    private readonly replicas: number,
    private readonly draw: () => number,
  ) {}

  choose(_request: PrefixRequest, except?: ReadonlySet<number>): number | undefined {
    if (except && except.size >= this.replicas) return undefined;
    for (;;) {
      const replica = Math.floor(this.draw() * this.replicas + 1e-9);
      if (!except?.has(replica)) return replica;
    }
  }

  tell(): void {}
  sent(): void {}
  ended(): void {}
}

/** The gateway's own table, which the product has too. */
class ByTable implements Router {
  constructor(
    protected readonly table: ReplicaTable,
    private readonly sessions: boolean,
  ) {}

  choose(request: PrefixRequest, except?: ReadonlySet<number>): number | undefined {
    const choice = this.table.choose(this.#routed(request), except && new Set([...except].map(String)));
    return typeof choice === 'string' ? undefined : Number(choice.replica);
  }

  tell(state: ReplicaState): void {
    this.table.tell(state);
  }

  sent(replica: number, request: PrefixRequest): void {
    this.table.sent(String(replica), request);
  }

  ended(replica: number): void {
    this.table.ended(String(replica));
  }

  #routed(request: PrefixRequest): RoutedRequest {
    return this.sessions ? request : { prefix: request.prefix };
  }
}

/** Two at random, of which the one with less to do takes it. */
class TwoChoices extends ByTable {
  constructor(private readonly random: Random) {
    super(new ReplicaTable(), false);
  }

  override choose(_request: PrefixRequest, except?: ReadonlySet<number>): number | undefined {
    const all = this.table.there.filter(({ name }) => !except?.has(Number(name)));
    if (all.length === 0) return undefined;
    const [one, other] = [all[this.random.integer(all.length)]!, all[this.random.integer(all.length)]!];
    return Number(sum([one.running, one.waiting]) <= sum([other.running, other.waiting]) ? one.name : other.name);
  }
}
