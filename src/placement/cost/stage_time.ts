import { sum } from '../../base/lists.js';
import { type Plan, type RankShare, isKvOnly } from '../plan.js';
import type { Place } from '../sequences/sequence_ranges.js';
import type { LayerSizes } from '../memory.js';
import { matesOf } from '../topology.js';
import { type PredictedExchange, layerExchanges, mlpKind, secondsOfExchange, stepExchanges } from './exchanges.js';
import { type AdapterMeasure, type MachineMeasure, type RowsMeasure, type Slowdown, linearSeconds } from './measure.js';
import type { StageStep } from './stage_step.js';
import type { ModelWork, StepRows } from './step_rows.js';

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

/**
 * The expected number of (row, expert) pairs on the busiest rank, when `pairs` of them fall on ranks with these shares of the
 * experts: a step waits for it, and for few rows it has far more than the mean. Ranks count as independent and routing as even:
 * the sum over m of 1 - P(no rank has more than m).
 */
export function expectedLargest(pairs: number, shares: readonly number[]): number {
  // Binomial terms P(X = m) of each rank, by recurrence in logarithms: pairs may be thousands.
  const atMost = shares.map(() => 0);
  const term = shares.map((share) => pairs * Math.log1p(-share));
  let expected = 0;
  for (let m = 0; m < pairs; m++) {
    let none = 1;
    for (const [rank, share] of shares.entries()) {
      if (share >= 1) none = 0;
      else if (share > 0) {
        atMost[rank] = Math.min(1, atMost[rank]! + Math.exp(term[rank]!));
        none *= atMost[rank]!;
        term[rank]! += Math.log(((pairs - m) / (m + 1)) * (share / (1 - share)));
      }
    }
    expected += 1 - none;
  }
  return expected;
}

/** Of a rank's `experts`, the number that some of `rows` rows is routed to, when `pairs` of their (row, expert) pairs fall on it. */
export function expertsRead(rows: number, pairs: number, experts: number): number {
  if (rows === 0 || experts === 0) return 0;
  // A row is routed to an expert once at most.
  const missed = Math.max(0, 1 - pairs / (rows * experts)) ** rows;
  return experts * (1 - missed);
}

/** The slowdown of `busy` ranks at once, also where that is an average. More than were measured count as those. */
export function slowdownAt(slowdown: Slowdown, busy: number): number {
  const at = Math.min(Math.max(busy, 1), slowdown.length);
  const below = Math.floor(at);
  const low = slowdown[below - 1]!;
  return low + (at - below) * ((slowdown[below] ?? low) - low);
}

/**
 * Until the last of some ranks is done whose work takes these times alone: they slow each other down as long as they work side by
 * side. `others`: how many times as many ranks are busy beside them.
 */
export function sideBySide(times: readonly number[], slowdown: Slowdown, others = 1): number {
  let ended = 0;
  let total = 0;
  for (const [i, time] of times.toSorted((a, b) => a - b).entries()) {
    total += (time - ended) * slowdownAt(slowdown, (times.length - i) * others);
    ended = time;
  }
  return total;
}
