import { sum } from '../lists.js';
import type { Plan, RankShare } from '../plan.js';
import type { LayerSizes } from '../sizes.js';
import { type Hop, hopSeconds, layerHops, stepHops } from './exchanges.js';
import { expectedLargest } from './expert_load.js';
import { type AdapterMeasure, type LinearMeasure, linearSeconds, type MachineMeasure } from './measure.js';
import { generatedRows, promptRows } from './step_rows.js';
import { type StageStep, stageSteps } from './stage_step.js';
import type { ModelWork, StepRows } from './work.js';

/** Predicted time of a step or of several. */
export interface StepTime {
  readonly seconds: number;
  /** Of which waiting for other ranks' bytes. */
  readonly exchangeSeconds: number;
  readonly exchanges: number;
}

/** One generated token of each of `slots` sequences of `length` tokens. */
export function generatedStep(
  plan: Plan,
  work: ModelWork,
  machine: MachineMeasure,
  slots: number,
  length: number,
): StepTime {
  return stepTime(plan, work, machine, generatedRows(slots, length), slots);
}

/** A whole prompt, `chunkRows` rows at a time, and the sampling of its first token. */
export function promptTime(
  plan: Plan,
  work: ModelWork,
  machine: MachineMeasure,
  promptLength: number,
  chunkRows: number,
): StepTime {
  const steps: StepTime[] = [];
  for (let first = 0; first < promptLength; first += chunkRows) {
    const rows = Math.min(chunkRows, promptLength - first);
    const last = first + rows === promptLength;
    steps.push(stepTime(plan, work, machine, promptRows(first, rows), last ? 1 : 0));
  }
  return {
    seconds: sum(steps.map(({ seconds }) => seconds)),
    exchangeSeconds: sum(steps.map(({ exchangeSeconds }) => exchangeSeconds)),
    exchanges: sum(steps.map(({ exchanges }) => exchanges)),
  };
}

/**
 * Stages work one after another, and within a layer the ranks meet at every hop: each part of it takes as long as its slowest
 * rank, slowed down by the others that work at the same time. `samples`: rows whose tokens are sampled.
 */
function stepTime(plan: Plan, work: ModelWork, machine: MachineMeasure, step: StepRows, samples: number): StepTime {
  const stages = stageSteps(plan, step);
  const hops: Hop[] = stepHops(plan, stages, work, samples);
  let compute = machine.ranks[0]!.submitSeconds;
  for (const stage of stages) {
    const pairsOf = expertPairs(stage, work, step.rows);
    const hopsOf = [layerHops(stage, work, false), layerHops(stage, work, true)] as const;
    const [first, end] = stage.stage.layers;
    for (let layer = first; layer < end; layer++) {
      const sizes = work.sizes.layers[layer]!;
      const here = hopsOf[sizes.expert > 0 ? 1 : 0];
      hops.push(...here);
      // What arrives is added up or merged by one more dispatch.
      const dispatches = work.layerDispatches[layer]! + here.length;
      const parts: Part[] = [
        ...layerParts(stage, sizes, pairsOf),
        (_, adapter) => dispatches * adapter.dispatchSeconds,
      ];
      for (const part of parts) compute += slowest(machine, stage.stage.shares, part);
    }
  }
  compute += slowest(machine, plan.head.slice(0, 1), (_, adapter) => work.stepDispatches * adapter.dispatchSeconds);
  compute += slowest(machine, plan.head, ({ rows: [start, end] }, adapter) =>
    linearSeconds(adapter.generated, (end - start) * work.sizes.headRow, samples),
  );
  const times = new Map<Hop, number>();
  for (const hop of hops) if (!times.has(hop)) times.set(hop, hopSeconds(machine, hop));
  const exchangeSeconds = sum(hops.map((hop) => times.get(hop)!));
  return { seconds: compute + exchangeSeconds, exchangeSeconds, exchanges: hops.length };
}

/** The time of the slowest rank, with all of them at work. */
function slowest<Share extends { readonly rank: number }>(
  { ranks, slowdown }: MachineMeasure,
  shares: readonly Share[],
  seconds: (share: Share, adapter: AdapterMeasure) => number,
): number {
  const times = shares.map((share) => seconds(share, ranks[share.rank]!));
  const busy = times.filter((time) => time > 0).length;
  return busy === 0 ? 0 : Math.max(...times) * slowdown[busy - 1]!;
}

type Part = (share: RankShare, adapter: AdapterMeasure) => number;

/** A layer's parts between hops: projections, attention, MLP. */
function layerParts(stage: StageStep, sizes: LayerSizes, pairsOf: (share: RankShare) => number): Part[] {
  const { rows, attended } = stage;
  const prompt = stage.role === 'prompt';
  const linear = (adapter: AdapterMeasure): LinearMeasure => (prompt ? adapter.prompt : adapter.generated);
  const held = (list: readonly number[], of: readonly number[]): number => sum(list.map((segment) => of[segment]!));
  return [
    (share, adapter) =>
      linearSeconds(linear(adapter), sizes.attentionShared + held(share.heads, sizes.attentionSegments), rows),
    (share, adapter) =>
      attended * share.kvHeads.length * (prompt ? adapter.promptAttention : adapter.generatedAttention),
    (share, adapter) => {
      const { secondsPerByte, secondsPerByteRow } = linear(adapter);
      const pairs = sizes.expert > 0 ? pairsOf(share) : 0;
      // Each expert that some row is routed to is read once.
      const read = Math.min(pairs, share.experts.length);
      return (
        linearSeconds(linear(adapter), sizes.mlpShared + held(share.mlp, sizes.mlpSegments), rows) +
        sizes.expert * (read * secondsPerByte + pairs * secondsPerByteRow)
      );
    },
  ];
}

/** The (row, expert) pairs that a rank computes in an expert layer. `rows`: of the whole step. */
function expertPairs(stage: StageStep, work: ModelWork, rows: number): (share: RankShare) => number {
  const { numExperts } = work.shape;
  if (!stage.spreadsExperts) return () => stage.rows * work.expertsPerToken;
  const parts = stage.stage.shares.map(({ experts }) => experts.length / numExperts);
  const largest = expectedLargest(rows * work.expertsPerToken, parts);
  return ({ experts }) => (largest * experts.length) / numExperts / Math.max(...parts);
}
