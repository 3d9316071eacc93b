/**
 * Room: ranks of other machines: those that a coordinator takes for a model (here), and the host of one on its own
 * machine (rank_host.ts). What either sends the other is checked in check_messages.ts.
 */

import { encode } from 'cborg/extended';
import { messageOf, peerLostError, type SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import type { LoadOptions, PrefillOptions } from '../../engine/contracts/api.js';
import { prefillList } from '../../engine/contracts/load_options.js';
import type { ModelPlaces } from '../../engine/faces/load.js';
import type { ChosenPlan } from '../../engine/planning/choose_plan.js';
import type { PlanSubject } from '../../engine/planning/plan_subject.js';
import type { Source } from '../../loader/index.js';
import type { ProbeSubject } from '../../engine/measure/probe.js';
import { WorkerRank } from '../../engine/workers/worker_rank.js';
import { nth } from '../../base/lists.js';
import { formatBytes } from '../../base/math.js';
import { pause } from '../../base/waits.js';
import type { AdapterRequest } from '../../gpu/index.js';
import type { ClusterRanksOptions } from '../../engine/contracts/cluster_options.js';
import { type LinkMeasure, type MachineMeasure, planName } from '../../placement/index.js';
import type { LinkAddress, RankPlaces, StartWorker, WorkerCommand } from '../../engine/workers/worker_protocol.js';
import { VERSION } from '../../base/version.js';
import { type Cluster, connectCluster } from '../connect.js';
import { NatsLink, newLink } from '../links/nats_link.js';
import { checkLink, checkMeasure, checkReport } from './check_messages.js';
import { adapterKind, callRoll, type RankCard, readObject } from './rank_card.js';

/** How long a rank that is missing may take to come, in seconds. */
const PATIENCE = 10;
const ROLL_AGAIN_MS = 500;
const CLAIM_MS = 2000;
/** More than any GPU has: budgets are of all ranks or of none. */
const UNLIMITED = 2 ** 40;
/** A rank that was left is free again when its worker has freed the GPU. */
const FREE_MS = 20_000;

export class ClusterRanks implements ModelPlaces {
  /** By rank, as they were taken last. */
  #cards: readonly RankCard[];
  readonly #claims = new Map<number, LinkAddress>();
  /** Links that are open, by rank. */
  readonly #links = new Map<number, NatsLink>();
  readonly #measures = new Map<string, MachineMeasure>();

  /** Bytes that each may give, by name, where that is limited. */
  readonly #memory: Map<string, number>;

  private constructor(
    readonly cluster: Cluster,
    cards: readonly RankCard[],
    /** Of prefill workers, which are taken when they are opened. */
    readonly besides: readonly RankCard[],
    readonly options: LoadOptions,
    /** How others may differ from the first one, and how many seconds one that is missing may take to come. */
    readonly how: Required<Pick<ClusterRanksOptions, 'mixed' | 'patience'>>,
  ) {
    this.#cards = cards;
    const { memory } = options;
    const given = cards.map(({ name }, at) => [name, typeof memory === 'object' ? memory[at] : memory] as const);
    this.#memory = new Map(given.filter((entry): entry is readonly [string, number] => entry[1] !== undefined));
  }

  /**
   * Finds the ranks that the options name or count; they are taken when the model's ranks are opened.
   * @throws SplitkvError `usage` where they don't go together or aren't there, as `connectCluster`
   */
  static async join(given: LoadOptions): Promise<ClusterRanks> {
    const { cluster: access, ranks = 1, prefill = [], signal } = given;
    refuseLocal(given);
    const { mixed = false, patience = PATIENCE, ...where } = access!;
    if (!(patience >= 0 && patience <= 86_400)) {
      throw usageError(`cluster: patience ${String(patience)}: expected seconds, from 0 to 86400`);
    }
    const cluster = await connectCluster({ ...where, ...(signal && { signal }) });
    try {
      const wanted = (cards: readonly RankCard[]): RankCard[] | undefined => choose(cards, ranks, mixed);
      const until = performance.now() + patience * 1000;
      for (;;) {
        throwIfAborted(signal, 'looking for ranks');
        const workers = prefillList(prefill);
        const isNamed = typeof ranks !== 'number' && workers.length === 0;
        const cards = await callRoll(cluster, (come) => isNamed && wanted(come) !== undefined);
        const chosen = wanted(cards);
        if (chosen) {
          const besides = chooseBeside(cards, chosen, workers, mixed, cluster);
          checkAlike([...chosen, ...besides], mixed);
          const kinds = new Set([...chosen, ...besides].map(adapterKind));
          if (kinds.size > 1) {
            given.onWarning?.(
              `the ranks' adapters differ (${[...kinds].join('; ')}): answers are near those of one rank, not its bits`,
            );
          }
          return new ClusterRanks(cluster, chosen, besides, settled(given, chosen), { mixed, patience });
        }
        if (performance.now() > until) throw usageError(missing(cards, ranks, cluster));
        await pause(ROLL_AGAIN_MS);
      }
    } catch (error) {
      await cluster.close();
      throw error;
    }
  }

  /** Takes a rank for each of these: the one that it was, otherwise another one of its kind. @throws SplitkvError `peer_lost` */
  async prepare(ranks: readonly number[], signal: AbortSignal | undefined): Promise<void> {
    const until = performance.now() + this.how.patience * 1000;
    let open = [...ranks];
    let refusals: string[] = [];
    for (;;) {
      throwIfAborted(signal, 'looking for ranks');
      refusals = [];
      const cards = await callRoll(this.cluster).catch(() => []);
      for (const rank of open) {
        const why = await this.#take(rank, cards);
        if (why !== undefined) refusals.push(`${this.name(rank)}: ${why}`);
      }
      open = open.filter((rank) => !this.#claims.has(rank));
      if (open.length === 0) return;
      if (performance.now() > until) break;
      await pause(ROLL_AGAIN_MS);
    }
    for (const rank of ranks) this.#release(rank);
    throw peerLostError(
      `${refusals.join('; ')}; and no other rank of its kind is free. ${comeBy(this.cluster)}, then call the model's recover(), or load it again`,
    );
  }

  #release(rank: number): void {
    const address = this.#claims.get(rank);
    if (!address) return;
    this.#claims.delete(rank);
    const link = new NatsLink(this.cluster, address, { message: () => {}, ended: () => {} });
    link.post({ type: 'request', id: 0, request: { type: 'dispose' } } satisfies WorkerCommand);
    link.close();
  }

  /**
   * As `ModelPlaces` says: with the ranks that are left, and free ones of their kind, in place of all that there were; none is held.
   * @param lost why one has no place any more
   * @throws SplitkvError `peer_lost` where none is left, or they don't do; `aborted`
   */
  async planOnRest(subject: PlanSubject, lost: SplitkvError, signal: AbortSignal | undefined): Promise<ChosenPlan> {
    const { chooseForRest } = await import('./plan_on_rest.js');
    const before = this.#cards;
    const rest = (await this.#free(signal)).slice(0, before.length - 1);
    if (rest.length === 0) throw lost;
    const names = rest.map(({ name }) => name);
    this.#cards = rest;
    try {
      const limits = rest.map(({ name, memory = UNLIMITED }) => Math.min(this.#memory.get(name) ?? UNLIMITED, memory));
      const { memory: _, ...options } = this.options;
      const chosen = await chooseForRest({ ...options, ranks: names, ...memoryOf(limits) }, subject, signal);
      this.arrange(chosen.adapters);
      const gone = before.filter(({ name }) => !names.includes(name)).map(({ name }) => name);
      const now = this.#cards.map(({ name }) => name);
      this.options.onWarning?.(
        `${gone.join(', ')} ${gone.length === 1 ? 'is' : 'are'} gone: ${planName(chosen.plan)} on ${now.join(', ')} goes on in its place`,
      );
      return chosen;
    } catch (error) {
      this.#cards = before;
      throwIfAborted(signal, 'recovering');
      const why = `On what is left (${names.join(', ')}) it can't go on: ${messageOf(error)}`;
      throw peerLostError(`${lost.message}. ${why}`, error);
    }
  }

  /** Ranks that can take shares: those that there were first. */
  async #free(signal: AbortSignal | undefined): Promise<readonly RankCard[]> {
    const [first] = this.#cards;
    const names = this.#cards.map(({ name }) => name);
    const at = (card: RankCard): number => (names.includes(card.name) ? names.indexOf(card.name) : names.length);
    const until = performance.now() + FREE_MS;
    for (;;) {
      throwIfAborted(signal, 'looking for ranks');
      const cards = (await callRoll(this.cluster).catch(() => []))
        .filter((card) => first && this.#isLike(card, first))
        .toSorted((a, b) => at(a) - at(b));
      const free = cards.filter(({ busy }) => !busy);
      // Those that there were end what they had.
      if (cards.every(({ name, busy }) => !busy || !names.includes(name)) || performance.now() > until) return free;
      await pause(ROLL_AGAIN_MS);
    }
  }

  /** Whether the bits of one are those of the other. */
  #isLike(card: RankCard, other: RankCard): boolean {
    return card.version === VERSION && (this.how.mixed || adapterKind(card) === adapterKind(other));
  }

  /** Undefined once the rank has a place, otherwise why it has none. */
  async #take(rank: number, cards: readonly RankCard[]): Promise<string | undefined> {
    const before = nth(this.#cards, rank);
    const names = new Set(this.#cards.map(({ name }) => name));
    const needed = this.#memory.get(before.name);
    const same = cards.filter(({ name }) => name === before.name);
    const spares = cards.filter(({ name, busy }) => !names.has(name) && !busy);
    let why = 'it is not there';
    for (const card of [...same, ...spares]) {
      if (!this.#isLike(card, before)) {
        why = `it is another one now (splitkv ${card.version}, ${adapterKind(card)})`;
        continue;
      }
      if (card.memory !== undefined && card.memory < (needed ?? Infinity)) {
        why = `${card.name} gives ${formatBytes(card.memory)}, which may be too little`;
        continue;
      }
      const [near, far] = newLink();
      const refused = await this.#claim(card, far);
      if (refused !== undefined) {
        why = refused;
        continue;
      }
      if (card.name !== before.name) this.options.onWarning?.(`rank ${card.name} takes the place of ${before.name}`);
      this.#cards = this.#cards.with(rank, card);
      this.#claims.set(rank, near);
      if (needed !== undefined) this.#memory.set(card.name, needed);
      return undefined;
    }
    return why;
  }

  async #claim({ name, id }: RankCard, link: LinkAddress): Promise<string | undefined> {
    try {
      const { data } = await this.cluster.connection.request(
        this.cluster.subject('claim', name),
        encode({ id, version: VERSION, link }),
        { timeout: CLAIM_MS },
      );
      const { ok, why } = readObject(data);
      return ok === true ? undefined : typeof why === 'string' ? why.slice(0, 500) : 'it refuses';
    } catch (error) {
      return `it doesn't answer (${messageOf(error)})`;
    }
  }

  name(rank: number): string {
    return nth(this.#cards, rank).name;
  }

  start(rank: number): StartWorker {
    return (events) => {
      const address = this.#claims.get(rank)!;
      this.#claims.delete(rank);
      const name = this.name(rank);
      const link = new NatsLink(this.cluster, address, {
        message: (value) => events.message(checkReport(value)),
        ended: (why) => {
          this.#links.delete(rank);
          events.ended(`${name} of the cluster: ${why}`);
        },
      });
      this.#links.set(rank, link);
      return {
        isThere: true,
        post: (command) => link.post(sendable(command)),
        hold: () => {},
        end: () => {
          link.close();
          return Promise.resolve();
        },
      };
    };
  }

  connections(worldSize: number): readonly ReadonlyMap<number, LinkAddress>[] {
    const ranks = Array.from({ length: worldSize }, () => new Map<number, LinkAddress>());
    for (const [a, one] of ranks.entries()) {
      for (const [b, other] of ranks.slice(0, a).entries()) {
        const [near, far] = newLink();
        one.set(b, near);
        other.set(a, far);
      }
    }
    return ranks;
  }

  /**
   * What the planner asks of ranks: each adapter by itself, and an exchange of each pair, over the network as they will. Each is taken to
   * be on a machine of its own: none slows another down. Each rank remembers what its adapter measured.
   */
  readonly measure = async (probe: ProbeSubject, adapters: readonly AdapterRequest[]): Promise<MachineMeasure> => {
    const key = JSON.stringify([probe, adapters]);
    const known = this.#measures.get(key);
    if (known) return known;
    this.arrange(adapters);
    const { signal } = this.options;
    const numbers = [...adapters.keys()];
    await this.prepare(numbers, signal);
    const ranks = numbers.map((rank) => new WorkerRank(rank, this.start(rank), { warning: () => {}, died: () => {} }));
    const stop = (): void => void Promise.all(ranks.map((rank) => rank.close()));
    signal?.addEventListener('abort', stop, { once: true });
    try {
      const { variants } = this.options;
      await Promise.all(ranks.map((rank) => rank.open(variants && variants !== 'auto' ? { variants } : {})));
      const measures = await Promise.all(ranks.map(async (rank) => checkMeasure(await rank.measure(probe))));
      const links = ranks.map(() => ranks.map((): LinkMeasure | undefined => undefined));
      for (const [a, one] of ranks.entries()) {
        for (const [b, other] of ranks.slice(0, a).entries()) {
          const [near, far] = newLink();
          const sides = await Promise.all([
            one.measureExchanges(0, new Map([[1, near]])),
            other.measureExchanges(1, new Map([[0, far]])),
          ]);
          [nth(links, a)[b], nth(links, b)[a]] = [checkLink(sides[0]), checkLink(sides[1])];
        }
      }
      const alone = ranks.map(() => 1);
      const measured = { ranks: measures, links, crowding: alone, slowdown: { generated: alone, prompt: alone } };
      this.#measures.set(key, measured);
      return measured;
    } catch (error) {
      throwIfAborted(signal, 'measuring');
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
      await Promise.all(ranks.map((rank) => rank.close()));
    }
  };

  /** A model that the cluster's server keeps. @throws as `openStored` */
  async stored(where: string): Promise<Source> {
    return (await import('../store/model_store.js')).openStored(this.cluster, where, this.options.signal);
  }

  /** The plan's ranks, in its order, where their adapters name them. */
  arrange(adapters: readonly AdapterRequest[]): void {
    const named = adapters.map(({ adapterName }) => this.#cards.find(({ name }) => name === adapterName));
    if (named.every((card) => card !== undefined)) this.#cards = named;
  }

  beside(worker: number): RankPlaces {
    const { memory: _, ...options } = this.options;
    const places = new ClusterRanks(this.cluster, [nth(this.besides, worker)], [], options, this.how);
    return {
      prepare: (ranks, signal) => places.prepare(ranks, signal),
      start: (rank) => places.start(rank),
      name: (rank) => places.name(rank),
      connections: (worldSize) => places.connections(worldSize),
    };
  }

  close(): Promise<void> {
    return this.cluster.close();
  }
}

/** @throws SplitkvError `usage` for options that are of devices of this machine */
function refuseLocal(options: LoadOptions): void {
  const refused: readonly (readonly [keyof LoadOptions, why: string])[] = [
    ['workers', 'each rank of a cluster is in a process of its own'],
    ['virtualRanks', 'ranks of a cluster have devices of their own'],
    ['adapter', "a rank's adapter is named where it runs: splitkv rank --adapter"],
    ['powerPreference', "a rank's adapter is named where it runs: splitkv rank --adapter"],
    ['fetch', "a function can't be sent to another machine"],
  ];
  for (const [name, why] of refused) {
    if (options[name] !== undefined && options[name] !== false)
      throw usageError(`${name} with a cluster: ${why}; leave it out`);
  }
  if (options.precision === 'fast')
    throw usageError("precision 'fast' with a cluster: ranks of a cluster compute exactly");
}

const isAlike = (one: RankCard, other: RankCard): boolean =>
  one.version === other.version && adapterKind(one) === adapterKind(other);

/** A rank for each prefill worker, by its name where it has one. @throws SplitkvError `usage` where it isn't there, or not free */
function chooseBeside(
  cards: readonly RankCard[],
  chosen: readonly RankCard[],
  workers: readonly PrefillOptions[],
  mixed: boolean,
  cluster: Cluster,
): RankCard[] {
  const taken = new Set(chosen);
  return workers.map(({ adapter: name }) => {
    const fits = (card: RankCard): boolean =>
      name === undefined ? mixed || isAlike(card, nth(chosen, 0)) : card.name === name;
    const found = cards.find((card) => !card.busy && !taken.has(card) && fits(card));
    if (!found)
      throw usageError(`prefill: beside the model's ${missing(cards, name === undefined ? 1 : [name], cluster)}`);
    taken.add(found);
    return found;
  });
}

function choose(cards: readonly RankCard[], ranks: number | readonly string[], mixed: boolean): RankCard[] | undefined {
  const free = cards.filter(({ busy }) => !busy);
  if (typeof ranks !== 'number') {
    const named = ranks.map((name) => free.find((card) => card.name === name));
    return named.every((card) => card !== undefined) ? named : undefined;
  }
  const alike = (card: RankCard): RankCard[] => free.filter((other) => mixed || isAlike(card, other));
  return free
    .map(alike)
    .find((group) => group.length >= ranks)
    ?.slice(0, ranks);
}

/** @throws SplitkvError `usage` with both, where two differ */
function checkAlike(cards: readonly RankCard[], mixed: boolean): void {
  for (const card of cards) {
    if (card.version !== VERSION) {
      throw usageError(
        `rank ${card.name} runs splitkv ${card.version}, and this is ${VERSION}: install one version everywhere`,
      );
    }
    const [first] = cards;
    if (!first || mixed || adapterKind(card) === adapterKind(first)) continue;
    throw usageError(
      `rank ${first.name} has ${adapterKind(first)}, and rank ${card.name} ${adapterKind(card)}: answers wouldn't be the same bits. Allow it (mixed), or take others`,
    );
  }
}

/** How there are more ranks. */
const comeBy = ({ hasServer }: Cluster): string =>
  hasServer ? 'Start one (splitkv rank --cluster URL --name NAME)' : 'Invite a tab';

function missing(cards: readonly RankCard[], ranks: number | readonly string[], cluster: Cluster): string {
  const there = cards.map(
    (card) => `${card.name} (${adapterKind(card)}, splitkv ${card.version}${card.busy ? ', busy' : ''})`,
  );
  const wanted = typeof ranks === 'number' ? `${ranks} free ones of one kind` : ranks.join(', ');
  return `ranks ${wanted}: the cluster has ${there.join('; ') || 'none'}. ${comeBy(cluster)}`;
}

/** The options as the planner understands them: how many, what they hold, what type their cache is, and that they compute exactly. */
function settled(options: LoadOptions, cards: readonly RankCard[]): LoadOptions {
  const { kv = 'auto', memory } = options;
  const software = cards.some(({ adapter }) => adapter.variants === 'software');
  const isSoftware =
    options.variants === undefined || options.variants === 'auto' ? software : options.variants === 'software';
  return {
    ...options,
    // Where the planner chooses, it says which of them.
    ranks: (options.plan ?? 'auto') === 'auto' && cards.length > 1 ? cards.map(({ name }) => name) : cards.length,
    kv: kv === 'auto' ? (isSoftware ? 'f32' : 'f16') : kv,
    precision: 'exact',
    ...(memory === undefined && memoryOf(cards.map((card) => card.memory ?? UNLIMITED))),
  };
}

/** Budgets of ranks of which some are limited. */
const memoryOf = (limits: readonly number[]): Pick<LoadOptions, 'memory'> =>
  limits.every((bytes) => bytes === UNLIMITED) ? {} : { memory: limits };

/** A command without what is this machine's own: accounts, and headers of requests. */
function sendable(command: WorkerCommand): WorkerCommand {
  if (command.type !== 'request' || command.request.type !== 'load') return command;
  const { slice } = command.request;
  const { place } = slice;
  if (place.kind !== 'url')
    throw usageError(
      "a rank of another machine can't read files of this one: name a URL, a folder or a model of the Hub",
    );
  const { hub, commit } = place.network;
  const network = { ...(hub !== undefined && { hub }), ...(commit !== undefined && { commit }) };
  return { ...command, request: { type: 'load', slice: { ...slice, place: { ...place, network } } } };
}
