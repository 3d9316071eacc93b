import { sum } from '../../base/lists.js';
import { isKvOnly, type Plan, type RankShare } from '../plan.js';
import type { Place } from '../sequences/sequence_ranges.js';
import type { LayerSizes } from '../sizes.js';
import { matesOf } from '../topology.js';
import { type PredictedExchange, secondsOfExchange, layerExchanges, mlpKind, stepExchanges } from './exchanges.js';
import { expectedLargest, expertsRead } from './expert_load.js';
import { type AdapterMeasure, linearSeconds, type MachineMeasure, type RowsMeasure, type Slowdown } from './measure.js';
import { sideBySide, slowdownAt } from './slowdown.js';
import type { StageStep } from './stage_step.js';
import type { ModelWork, StepRows } from './work.js';

/** What one stage does of a step. */
export interface StageTime {
  /** Of its busiest ranks, part by part: they meet at every exchange. */
  readonly computeSeconds: number;
  /** Waiting for other ranks' bytes, those that come from the stage before included. */
  readonly exchangeSeconds: number;
  readonly exchanges: number;
  /** How long steps of other sequences have to wait for it. */
  readonly takenSeconds: number;
}

/**
 * Each stage's part of a step. Within a layer the ranks meet at every exchange: each part of it takes as long as its slowest rank, slowed
 * down by the others that work at the same time. `samples`: rows whose tokens are sampled. `busyStages`: how many stages work at
 * once, on rows of different steps.
 */
export function stageTimes(
  plan: Plan,
  stages: readonly StageStep[],
  work: ModelWork,
  machine: MachineMeasure,
  step: StepRows,
  samples: number,
  busyStages = 1,
): StageTime[] {
  const outside = stepExchanges(stages, work, samples);
  return stages.map((stage, index) => {
    const slowest = slowestOf(machine, stage, busyStages);
    const pairsOf = expertPairs(stage, work, step.rows);
    const exchangesOf = {
      gated: layerExchanges(stage, work, 'gated'),
      experts: layerExchanges(stage, work, 'experts'),
      'shared experts': layerExchanges(stage, work, 'shared experts'),
    };
    const exchanges: PredictedExchange[] = [...outside[index]!];
    const submit = index === 0 ? machine.ranks[stage.holders[0]!.rank]!.submitSeconds : 0;
    let computeSeconds = submit;
    // What each rank does itself.
    const own = new Map(stage.stage.shares.map(({ rank }) => [rank, submit]));
    const spend = <Share extends { readonly rank: number }>(
      shares: readonly Share[],
      seconds: (share: Share, adapter: AdapterMeasure) => number,
    ): void => {
      computeSeconds += slowest(shares, seconds);
      for (const share of shares) {
        own.set(share.rank, own.get(share.rank)! + seconds(share, machine.ranks[share.rank]!));
      }
    };
    const [first, end] = stage.stage.layers;
    for (let layer = first; layer < end; layer++) {
      const sizes = work.sizes.layers[layer]!;
      const here = exchangesOf[mlpKind(sizes)];
      exchanges.push(...here);
      const dispatches = extraDispatches(here);
      for (const part of layerParts(stage, layer, sizes, pairsOf, dispatches)) spend(stage.stage.shares, part);
    }
    if (index === stages.length - 1) {
      const { ranks } = stage.topology;
      spend(
        plan.head.filter(({ rank }) => ranks[rank]!.root === rank),
        (_, adapter) => work.stepDispatches * adapter.dispatchSeconds,
      );
      // Where places run rows of their own, each samples those of its sequences.
      const sampled = (rank: number): number => {
        const share = stage.holders.find((holder) => holder.rank === rank)!;
        return ranks[rank]!.ownPlace === undefined ? samples : Math.round((samples * stage.rowsOf(share)) / step.rows);
      };
      spend(plan.head, ({ rank, rows: [start, stop] }, adapter) =>
        linearSeconds(adapter.head, (stop - start) * work.sizes.headRow, sampled(rank)),
      );
    }
    const times = new Map<PredictedExchange, number>();
    for (const exchange of exchanges)
      if (!times.has(exchange)) times.set(exchange, secondsOfExchange(machine, exchange));
    const exchangeSeconds = sum(exchanges.map((exchange) => times.get(exchange)!));
    return {
      computeSeconds,
      exchangeSeconds,
      exchanges: exchanges.length,
      takenSeconds: stage.takesTurns
        ? takenOf([...own.values()], machine.slowdown[stage.role], busyStages)
        : computeSeconds + exchangeSeconds,
    };
  });
}

/** Until ranks that take turns are free again: the busiest, or all of them as fast as the machine lets so many work side by side. */
function takenOf(own: readonly number[], slowdown: Slowdown, busyStages: number): number {
  const ranks = own.length;
  return Math.max(...own, (sum(own) * slowdownAt(slowdown, ranks * busyStages)) / ranks);
}

/** The time of some ranks until the last is done. */
function slowestOf({ ranks, slowdown }: MachineMeasure, { role }: StageStep, busyStages: number) {
  return <Share extends { readonly rank: number }>(
    shares: readonly Share[],
    seconds: (share: Share, adapter: AdapterMeasure) => number,
  ): number => {
    const times = shares.map((share) => seconds(share, ranks[share.rank]!));
    return sideBySide(times, slowdown[role], busyStages);
  };
}

/** What arrives is added up or merged by one more dispatch; queries are attended to with the rank's own. */
const extraDispatches = (exchanges: readonly PredictedExchange[]): number =>
  exchanges.filter(({ label }) => label !== 'queries').length;

type Part = (share: RankShare, adapter: AdapterMeasure) => number;

/** A layer's parts between exchanges: projections, attention, MLP. */
function layerParts(
  stage: StageStep,
  layer: number,
  sizes: LayerSizes,
  pairsOf: (share: RankShare) => { readonly pairs: number; readonly read: number },
  dispatches: number,
): Part[] {
  const { rowsOf, mlpRowsOf, attendedOf, attendedHeads, role } = stage;
  const of = (adapter: AdapterMeasure): RowsMeasure => (sizes.expert > 0 ? adapter.expert : adapter.dense)![role];
  const held = (list: readonly number[], bytes: readonly number[]): number =>
    sum(list.map((segment) => bytes[segment]!));
  return [
    (share, adapter) =>
      linearSeconds(of(adapter), sizes.attentionShared + held(share.heads, sizes.attentionSegments), rowsOf(share)),
    (share, adapter) => attendedOf(share) * attendedHeads(share, layer) * of(adapter).attention,
    (share, adapter) => {
      const measure = of(adapter);
      const { pairs, read } = sizes.expert > 0 ? pairsOf(share) : { pairs: 0, read: 0 };
      return (
        linearSeconds(measure, sizes.mlpShared, rowsOf(share)) +
        linearSeconds(measure, held(share.mlp, sizes.mlpSegments), mlpRowsOf(share)) +
        sizes.expert * (read * measure.secondsPerByte + pairs * measure.secondsPerByteRow)
      );
    },
    // A rank that keeps caches only attends while the others do.
    (share, adapter) => (isKvOnly(share) ? 0 : of(adapter).layerSeconds + dispatches * adapter.dispatchSeconds),
  ];
}

/**
 * The (row, expert) pairs that a rank computes in an expert layer, and the experts that it reads. `rows`: of the whole step, of which a
 * rank's experts get all, or those of its place.
 */
function expertPairs(
  stage: StageStep,
  work: ModelWork,
  rows: number,
): (share: RankShare) => { readonly pairs: number; readonly read: number } {
  const { numExperts } = work.shape;
  const { spreadsExperts, gathersExperts } = stage;
  const largest = new Map<Place, number>();
  return (share) => {
    const { experts } = share;
    if (experts.length === 0) return { pairs: 0, read: 0 };
    const own = gathersExperts ? rows : stage.rowsOf(share);
    const all = own * work.expertsPerToken;
    const sharing = gathersExperts ? stage.holders : matesOf(stage, share);
    if (spreadsExperts && !largest.has(sharing)) {
      const parts = sharing.map((rank) => rank.experts.length / numExperts);
      largest.set(sharing, expectedLargest(all, parts) / Math.max(...parts));
    }
    const pairs = ((largest.get(sharing) ?? all) * experts.length) / numExperts;
    return { pairs, read: expertsRead(own, pairs, experts.length) };
  };
}
