import { internalError } from '../../base/errors.js';
import { nth } from '../../base/lists.js';
import type { Communicator, Exchange, Region, Transfer } from '../../distributed/communicator.js';
import type { ProgramStep, Recorder, RowsOf } from '../../gpu/index.js';
import {
  firstRowOf,
  type Plan,
  type PlanTopology,
  planTopology,
  type RankTopology,
  rankTopology,
  type Route,
  type RowRole,
} from '../../placement/index.js';

export interface RankStep extends ProgramStep {
  /** Steps under way side by side exchange with other ranks on channels of their own; default 0. */
  readonly channel?: number;
  /** Slots of the rows, group by group; one alone: that of all rows. */
  readonly slots?: readonly number[];
  /** By row group: offsets of its rows' sequences, which say who has their first chunks; undefined where that isn't known. */
  readonly offsets?: readonly (readonly number[])[] | undefined;
}

export type RankRecorder = Recorder<RankStep>;

/** Where the bytes of a route lie on this rank: what it sends of it, or where it takes it. */
export type RegionsOf = (route: Route, side: 'send' | 'receive', step: RankStep) => Region[];

/** A rank's place in the plan, and its line to the other ranks. */
export class World {
  readonly topology: RankTopology;
  readonly all: PlanTopology;
  /** Once the rank is connected; another one after a recovery, of the new group. */
  communicator: Communicator | undefined;

  /** `mixed`: the ranks' adapters differ, so results that others rely on exactly are computed by one rank. */
  constructor(
    readonly plan: Plan,
    readonly rank: number,
    readonly mixed = false,
  ) {
    this.topology = rankTopology(plan, rank);
    this.all = planTopology(plan);
  }

  async exchange(encoder: GPUCommandEncoder, exchange: Exchange): Promise<void> {
    if (!this.communicator) throw internalError(`rank ${this.rank} isn't connected`);
    await this.communicator.exchange(encoder, exchange);
  }

  /** Rows of a role that this rank runs, of a step's row groups. */
  rowsOf(role: RowRole): RowsOf {
    const groups = this.topology.runs[role];
    return (rows) => groups.reduce((sum, group) => sum + rows[group]!, 0);
  }

  /** A row group's rows among those that this rank runs. */
  rowRange(role: RowRole, group: number, { rows }: ProgramStep): { readonly first: number; readonly count: number } {
    return { first: firstRowOf(group, this.topology.runs[role], rows), count: nth(rows, group) };
  }

  /** Records an exchange of routes, also from a rank to itself; none where this rank has no part in one to another. */
  exchangeRoutes(recorder: RankRecorder, label: string, routes: readonly Route[], regionsOf: RegionsOf): void {
    const { rank } = this;
    const sends = routes.filter(({ from }) => from === rank);
    const receives = routes.filter(({ to }) => to === rank);
    if (![...sends, ...receives].some(({ from, to }) => from !== to)) return;
    recorder.exchange({
      label,
      run: (encoder, step) =>
        this.exchange(encoder, {
          label,
          channel: step.channel ?? 0,
          sends: byPeer(sends.map((route) => ({ peer: route.to, regions: regionsOf(route, 'send', step) }))),
          receives: byPeer(receives.map((route) => ({ peer: route.from, regions: regionsOf(route, 'receive', step) }))),
        }),
    });
  }
}

function byPeer(transfers: readonly Transfer[]): Transfer[] {
  const regions = new Map<number, Region[]>();
  for (const { peer, regions: own } of transfers) regions.set(peer, [...(regions.get(peer) ?? []), ...own]);
  return [...regions].map(([peer, own]) => ({ peer, regions: own }));
}
