import { SplitkvError, throwIfAborted, withAbort } from '../../base/errors.js';
import { nth, range } from '../../base/lists.js';
import { progressOf } from '../ranks/open_rank.js';
import type { GroupOptions, ModelRanks, NamedAdapter } from '../ranks/rank_group.js';
import { Runner } from '../ranks/runner.js';
import { placesHere, type RankPlaces, rankWorkerStarter, type SliceRequest } from './worker_protocol.js';
import { WorkerRank } from './worker_rank.js';

export interface WorkerGroupOptions
  extends
    Omit<SliceRequest, 'rank' | 'mixed'>,
    Pick<GroupOptions, 'config' | 'adapters' | 'signal' | 'onProgress' | 'onWarning'> {
  /** Ranks load one after another, so that each finds in the cache what the one before downloaded. */
  readonly oneByOne: boolean;
  /** Where the ranks run; default: Web Workers or worker_threads of this process. */
  readonly places?: RankPlaces | undefined;
  /**
   * Another plan, where a recovery found no place for a rank that was lost; no rank is held meanwhile. Default: the recovery fails.
   * @throws SplitkvError what the recovery is to fail with
   */
  readonly replan?: ((lost: SplitkvError, signal: AbortSignal | undefined) => Promise<RanksOfPlan>) | undefined;
}

export type RanksOfPlan = Pick<WorkerGroupOptions, 'plan' | 'adapters' | 'runner'>;

/** The ranks of a model, each in a worker of its own; tensors go from worker to worker. */
export class WorkerGroup implements ModelRanks {
  #ranks: readonly WorkerRank[] = [];
  #runner: Runner | undefined;
  #disposal: Promise<void> | undefined;
  /** Why no rank is held. */
  #lost: SplitkvError | undefined;

  private constructor(
    public options: WorkerGroupOptions,
    readonly places: RankPlaces,
  ) {}

  /** Starts a worker a rank, which opens its device and loads its slice. @throws as `RankGroup.open`; no worker is left then. */
  static async open(options: WorkerGroupOptions): Promise<WorkerGroup> {
    const places = options.places ?? placesHere(await rankWorkerStarter());
    const group = new WorkerGroup(options, places);
    await group.#assemble(options.signal);
    return group;
  }

  get runner(): Runner {
    return this.#runner!;
  }

  get adapter(): NamedAdapter {
    return nth(this.#ranks, 0).adapter;
  }

  assertUsable(): void {
    if (this.#lost) throw this.#lost;
    for (const { failure } of this.#ranks) if (failure) throw failure;
  }

  /** As `RankGroup.recover`: a rank that lost its device or its worker gets a new worker; where there is none, others take its share. */
  async recover(signal?: AbortSignal): Promise<void> {
    throwIfAborted(signal, 'recovering');
    for (const { calls } of this.#ranks) calls.abort(new Error('the ranks are being rebuilt'));
    const resets = await Promise.allSettled(this.#healthy().map(({ calls }) => calls.reset()));
    const failed = resets.find((reset) => reset.status === 'rejected');
    // Whoever was lost meanwhile is replaced too.
    if (failed && this.#healthy().length === resets.length) throw failed.reason;
    await this.#assemble(signal, this.options.replan);
  }

  #healthy(): readonly WorkerRank[] {
    return this.#ranks.filter(({ failure }) => !failure);
  }

  /** Puts new workers where ranks are missing or failed, and links all. @param replan where that may be done */
  async #assemble(signal: AbortSignal | undefined, replan?: WorkerGroupOptions['replan']): Promise<void> {
    const { plan, config, runner, adapters } = this.options;
    const kept = new Map(this.#healthy().map((rank) => [rank.rank, rank]));
    await Promise.all(this.#ranks.filter(({ failure }) => failure).map((rank) => rank.close()));
    const missing = range(0, plan.worldSize).filter((rank) => !kept.has(rank));
    try {
      await this.places.prepare?.(missing, signal);
    } catch (error) {
      if (!replan || !(error instanceof SplitkvError && error.code === 'peer_lost')) throw error;
      // All hold slices of the plan that was.
      this.#lost = error;
      await Promise.all(this.#ranks.map((rank) => rank.close()));
      this.options = { ...this.options, ...(await replan(error, signal)) };
      return this.#assemble(signal, replan);
    }
    const made: WorkerRank[] = [];
    try {
      const ranks = range(0, plan.worldSize).map((rank) => {
        const found = kept.get(rank);
        if (found) return found;
        const fresh = this.#startRank(rank);
        made.push(fresh);
        return fresh;
      });
      const ready = async (): Promise<void> => {
        await Promise.all(made.map((rank) => rank.open(nth(adapters, rank.rank))));
        await this.#load(made, ranks);
        const ports = this.places.connections(plan.worldSize);
        await Promise.all(ranks.map((rank) => rank.connect(nth(ports, rank.rank))));
      };
      await withAbort(ready(), signal, 'loading');
      this.#lost = undefined;
      this.#ranks = ranks;
      const calls = ranks.map((rank) => rank.calls);
      this.#runner = new Runner(calls, plan, config, runner);
    } catch (error) {
      await Promise.all(made.map((rank) => rank.close()));
      throw error;
    }
  }

  #startRank(rank: number): WorkerRank {
    const events = {
      warning: (message: string) => this.options.onWarning?.(message),
      // Where ports don't tell that their other end is gone, the ranks hear it from here.
      died: (reason: SplitkvError) => {
        for (const other of this.#ranks) if (other.rank !== rank) other.calls.abort(reason);
      },
    };
    return new WorkerRank(rank, this.places.start(rank), events);
  }

  async #load(made: readonly WorkerRank[], all: readonly WorkerRank[]): Promise<void> {
    const { place, cache, integrity, digest, oneByOne, type, plan, runner, onProgress } = this.options;
    const mixed = all.some(({ adapter }) => adapter.name !== nth(all, 0).adapter.name);
    const progress = progressOf(made.length, onProgress);
    const load = (rank: WorkerRank, index: number): Promise<void> =>
      rank.load({ place, cache, integrity, digest, type, plan, rank: rank.rank, mixed, runner }, (report) =>
        progress(index, report),
      );
    if (!oneByOne) await Promise.all(made.map(load));
    else for (const [index, rank] of made.entries()) await load(rank, index);
  }

  /** Resolves when no worker is left. */
  dispose(): Promise<void> {
    return (this.#disposal ??= Promise.all(this.#ranks.map((rank) => rank.close())).then(() => this.places.close?.()));
  }
}
