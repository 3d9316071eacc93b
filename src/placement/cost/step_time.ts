/**
 * Room: what a step of a plan will take, from what was measured of the machine (measure.ts) and of the model
 * (step_rows.ts). exchanges.ts counts bytes by the same routes that the runtime uses. Read step_rows.ts next.
 */

import { nth, range, sum } from '../../base/lists.js';
import { type Plan, type RankShare, isKvOnly, pipelineDepth, pipelineRuns } from '../plan.js';
import type { Place } from '../sequences/sequence_ranges.js';
import type { LayerSizes } from '../memory.js';
import { matesOf } from '../topology.js';
import {
  type PredictedExchange,
  layerExchanges,
  type MlpKind,
  mlpKind,
  secondsOfExchange,
  stepExchanges,
} from './exchanges.js';
import { type AdapterMeasure, type MachineMeasure, type RowsMeasure, type Slowdown, linearSeconds } from './measure.js';
import {
  type ModelWork,
  type StageStep,
  type StepRows,
  generatedRows,
  promptRows,
  promptSteps,
  stageSteps,
} from './step_rows.js';

/** Predicted time of a step or of several. */
export interface StepTime {
  readonly seconds: number;
  /** Of which waiting for other ranks' bytes. */
  readonly exchangeSeconds: number;
  readonly exchanges: number;
}

/**
 * One generated token of each of `slots` sequences of `length` tokens. They are cut into batches whose steps run side by side, by default
 * as many as a pipeline has stages, so that all of them work. `entries`: that each head has, [layer][kv head]; default all.
 */
export function generatedStep(
  plan: Plan,
  work: ModelWork,
  machine: MachineMeasure,
  slots: number,
  length: number,
  wanted = pipelineDepth(plan),
  entries?: readonly (readonly number[])[],
): StepTime {
  const batches = Math.min(wanted, slots);
  const step = generatedRows(Math.ceil(slots / batches), length, entries);
  const timesOf = (busy: number): StageTime[] =>
    byRun(plan, stageTimes(plan, stageSteps(plan, step), work, machine, step, step.rows, busy));
  const periodOf = (times: readonly StageTime[]): number =>
    // The next token of a batch waits for its last one, and a stage for the batches before.
    Math.max(sum(times.map(secondsOf)), batches * Math.max(...times.map(({ takenSeconds }) => takenSeconds)));
  const alone = timesOf(1);
  const busy = (batches * sum(alone.map(secondsOf))) / periodOf(alone);
  const times = busy > 1 ? timesOf(busy) : alone;
  return { ...total(times), seconds: periodOf(times) };
}

/**
 * Whole prompts, one after the other (or one a place, where places run rows of their own), at most `chunkRows` rows of a rank at a time,
 * and the sampling of their first tokens. A pipeline's stages work on steps that follow each other.
 */
export function promptTime(
  plan: Plan,
  work: ModelWork,
  machine: MachineMeasure,
  promptLength: number,
  chunkRows: number,
  prompts = 1,
): StepTime {
  const [{ rowSplit, placeRanks }] = stageSteps(plan, promptRows(0, 1)) as [StageStep];
  const atOnce = Math.min(prompts, placeRanks.length);
  const timesOf = (count: number, busy: number): StageTime[][] => {
    const steps = promptSteps(promptLength, chunkRows, rowSplit, count);
    return steps.map((step, i) => {
      const samples = i === steps.length - 1 ? count : 0;
      return byRun(plan, stageTimes(plan, stageSteps(plan, step), work, machine, step, samples, busy));
    });
  };
  const all = (busy: number): StageTime[][] => {
    const round = timesOf(atOnce, busy);
    const rest = prompts % atOnce;
    return [...range(0, Math.floor(prompts / atOnce)).flatMap(() => round), ...(rest > 0 ? timesOf(rest, busy) : [])];
  };
  const alone = all(1);
  const busy = sum(alone.flat().map(secondsOf)) / pipelined(alone);
  const times = busy > 1 ? all(busy) : alone;
  // The host waits for every step, and at last for the token.
  const waits = (times.length + Math.ceil(prompts / atOnce)) * nth(machine.ranks, 0).waitSeconds;
  return { ...total(times.flat()), seconds: pipelined(times) + waits };
}

/** Stages of a run are on the same ranks, which work on one after the other. */
const byRun = (plan: Plan, times: readonly StageTime[]): StageTime[] =>
  pipelineRuns(plan).map((stages) => {
    const own = stages.map((stage) => nth(times, stage));
    return {
      ...total(own),
      computeSeconds: sum(own.map(({ computeSeconds }) => computeSeconds)),
      takenSeconds: sum(own.map(({ takenSeconds }) => takenSeconds)),
    };
  });

const secondsOf = ({ computeSeconds, exchangeSeconds }: StageTime): number => computeSeconds + exchangeSeconds;

const total = (times: readonly StageTime[]): Omit<StepTime, 'seconds'> => ({
  exchangeSeconds: sum(times.map(({ exchangeSeconds }) => exchangeSeconds)),
  exchanges: sum(times.map(({ exchanges }) => exchanges)),
});

/** The end of steps that pass the stages in order, one at a time in each. `times`: by step and stage. */
function pipelined(times: readonly (readonly StageTime[])[]): number {
  let free: readonly number[] = [];
  for (const step of times) {
    let at = 0;
    free = step.map((time, stage) => (at = Math.max(at, free[stage] ?? 0) + secondsOf(time)));
  }
  return free.at(-1) ?? 0;
}

interface StageTime {
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
function stageTimes(
  plan: Plan,
  stages: readonly StageStep[],
  work: ModelWork,
  machine: MachineMeasure,
  step: StepRows,
  samples: number,
  busyStages = 1,
): StageTime[] {
  const outside = stepExchanges(stages, work, samples);
  const timed = (exchanges: readonly PredictedExchange[]) =>
    exchanges.map((exchange) => ({ ...exchange, seconds: secondsOfExchange(machine, exchange) }));
  return stages.map((stage, index) => {
    const { layers, shares } = stage.stage;
    const pairsOf = expertPairs(stage, work, step.rows);
    const inLayer = (mlp: MlpKind) => timed(layerExchanges(stage, work, mlp));
    const inLayers = {
      gated: inLayer('gated'),
      experts: inLayer('experts'),
      'shared experts': inLayer('shared experts'),
    };
    const exchanges = timed(nth(outside, index));
    const submit = index === 0 ? nth(machine.ranks, nth(stage.holders, 0).rank).submitSeconds : 0;
    let computeSeconds = submit;
    // What each rank does itself.
    const own = new Map(shares.map(({ rank }) => [rank, submit]));
    const spend = <Share extends { readonly rank: number }>(
      among: readonly Share[],
      secondsOn: (share: Share, adapter: AdapterMeasure) => number,
    ): void => {
      const times = among.map((share) => ({
        rank: share.rank,
        seconds: secondsOn(share, nth(machine.ranks, share.rank)),
      }));
      const alone = times.map(({ seconds }) => seconds);
      computeSeconds += sideBySide(alone, machine.slowdown[stage.role], busyStages);
      for (const { rank, seconds } of times) own.set(rank, (own.get(rank) ?? 0) + seconds);
    };
    for (const layer of range(...layers)) {
      const sizes = nth(work.sizes.layers, layer);
      const here = inLayers[mlpKind(sizes)];
      exchanges.push(...here);
      // What arrives is added up or merged by one more dispatch; queries are attended to with the rank's own.
      const dispatches = here.filter(({ label }) => label !== 'queries').length;
      for (const part of layerParts(stage, layer, sizes, pairsOf, dispatches)) spend(shares, part);
    }
    if (index === stages.length - 1) {
      const { ranks } = stage.topology;
      spend(
        plan.head.filter(({ rank }) => nth(ranks, rank).root === rank),
        (_, adapter) => work.stepDispatches * adapter.dispatchSeconds,
      );
      // Where places run rows of their own, each samples those of its sequences.
      const sampled = (rank: number): number => {
        const share = stage.holders.find((holder) => holder.rank === rank)!;
        return stage.topology.ownRows ? Math.round((samples * stage.rowsOf(share)) / step.rows) : samples;
      };
      spend(plan.head, ({ rank, rows: [start, stop] }, adapter) =>
        linearSeconds(adapter.head, (stop - start) * work.sizes.headRow, sampled(rank)),
      );
    }
    const exchangeSeconds = sum(exchanges.map(({ seconds }) => seconds));
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

function layerParts(
  stage: StageStep,
  layer: number,
  sizes: LayerSizes,
  pairsOf: (share: RankShare) => { readonly pairs: number; readonly read: number },
  dispatches: number,
): ((share: RankShare, adapter: AdapterMeasure) => number)[] {
  const { rowsOf, mlpRowsOf, attendedOf, attendedHeads, role } = stage;
  const of = (adapter: AdapterMeasure): RowsMeasure => (sizes.expert > 0 ? adapter.expert : adapter.dense)![role];
  const held = (list: readonly number[], bytes: readonly number[]): number =>
    sum(list.map((segment) => nth(bytes, segment)));
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
  const ranks = shares.map((share) => ({ share, atMost: 0, term: pairs * Math.log1p(-share) }));
  let expected = 0;
  for (let m = 0; m < pairs; m++) {
    let none = 1;
    for (const rank of ranks) {
      const { share } = rank;
      if (share >= 1) none = 0;
      else if (share > 0) {
        rank.atMost = Math.min(1, rank.atMost + Math.exp(rank.term));
        none *= rank.atMost;
        rank.term += Math.log(((pairs - m) / (m + 1)) * (share / (1 - share)));
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
  const low = nth(slowdown, below - 1);
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
