/**
 * Room: what a step of a plan will take, from what was measured of the machine (measure.ts) and of the model
 * (step_rows.ts). exchanges.ts counts bytes by the same routes that the runtime uses. Read stage_step.ts next.
 */

import { range, sum } from '../../base/lists.js';
import { type Plan, pipelineDepth, pipelineRuns } from '../plan.js';
import type { MachineMeasure } from './measure.js';
import { type ModelWork, generatedRows, promptRows, promptSteps } from './step_rows.js';
import { type StageStep, stageSteps } from './stage_step.js';
import { type StageTime, stageTimes } from './stage_time.js';

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
  const waits = (times.length + Math.ceil(prompts / atOnce)) * machine.ranks[0]!.waitSeconds;
  return { ...total(times.flat()), seconds: pipelined(times) + waits };
}

/** Stages of a run are on the same ranks, which work on one after the other. */
const byRun = (plan: Plan, times: readonly StageTime[]): StageTime[] =>
  pipelineRuns(plan).map((stages) => {
    const own = stages.map((stage) => times[stage]!);
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
  const free = times[0]!.map(() => 0);
  for (const step of times) {
    let at = 0;
    for (const [stage, time] of step.entries()) {
      at = Math.max(at, free[stage]!) + secondsOf(time);
      free[stage] = at;
    }
  }
  return free.at(-1)!;
}
