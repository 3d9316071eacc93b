import { alignedTable } from '../../base/aligned_table.js';
import { formatBytes } from '../../base/math.js';
import { count } from '../../base/lists.js';
import type { PlanCandidate, PlanPrediction } from '../planner.js';

const HEADINGS = ['  plan', 'ranks', 'tokens/s', 'first token', 'request', 'memory per rank', 'exchanges', 'waiting'];

/**
 * The planner's table for people: predicted speed, time to the first token and of a whole request, the largest rank's memory,
 * exchanges per token and the share of its time spent in them. The pick is marked; refused plans come last, with the reason.
 */
export function formatPlanTable(candidates: readonly PlanCandidate[], pick?: PlanCandidate): string {
  const runs = candidates.filter((candidate) => candidate.plan !== undefined && candidate.refused === undefined);
  const rows = runs.map((candidate) => {
    const [name, ...rest] = cells(candidate as PlanCandidate & PlanPrediction);
    return [`${candidate === pick ? '*' : ' '} ${name}`, ...rest];
  });
  const lines = alignedTable([HEADINGS, ...rows], 1)
    .trimEnd()
    .split('\n');
  for (const candidate of worthTelling(candidates)) lines.push(`- ${refusedLine(candidate)}`);
  return lines.join('\n');
}

/** Of plans that some rank has no room for, all; of policies that fit no number of these ranks, the reason for the most of them. */
function worthTelling(candidates: readonly PlanCandidate[]): (PlanCandidate & { readonly refused: string })[] {
  const fits = new Set(candidates.flatMap(({ plan, policy }) => (plan ? [policy] : [])));
  const last = new Map(candidates.map((candidate) => [candidate.policy, candidate]));
  return candidates.filter(
    (candidate): candidate is PlanCandidate & { readonly refused: string } =>
      candidate.refused !== undefined &&
      (candidate.plan !== undefined || (!fits.has(candidate.policy) && last.get(candidate.policy) === candidate)),
  );
}

function cells({ policy, worldSize, ...prediction }: PlanCandidate & PlanPrediction): string[] {
  const { tokensPerSecond, firstTokenSeconds, requestSeconds, memory, decode } = prediction;
  return [
    policy,
    `${worldSize}`,
    tokensPerSecond.toPrecision(3).includes('e') ? tokensPerSecond.toFixed(0) : tokensPerSecond.toPrecision(3),
    formatSeconds(firstTokenSeconds),
    formatSeconds(requestSeconds),
    formatBytes(Math.max(...memory.map(({ totalBytes }) => totalBytes))),
    `${decode.exchanges}`,
    `${Math.round((100 * decode.exchangeSeconds) / decode.seconds)}%`,
  ];
}

function refusedLine({ policy, worldSize, refused, plan }: PlanCandidate & { readonly refused: string }): string {
  // A reason from makePlan names plan and ranks itself.
  return plan === undefined ? refused : `${policy} on ${count(worldSize, 'rank')}: ${refused}`;
}

/** Why the pick is what it is, in a sentence. */
export function explainPick(candidates: readonly PlanCandidate[], pick: PlanCandidate & PlanPrediction): string {
  const one = candidates.find(({ worldSize }) => worldSize === 1);
  const request = ({ requestSeconds }: PlanPrediction): string => formatSeconds(requestSeconds);
  if (pick.worldSize > 1) {
    const name = `${pick.policy} on ${count(pick.worldSize, 'rank')}`;
    if (!one?.plan) return name;
    if (one.refused !== undefined) return `${name}: one rank has no room for the model`;
    const ratio = (one.requestSeconds / pick.requestSeconds).toFixed(2);
    return `${name}: a request takes ${request(pick)}, ${ratio} times as fast as on one rank (${request(one)})`;
  }
  const split = candidates
    .filter((candidate) => candidate.plan !== undefined)
    .filter((candidate) => candidate.worldSize > 1 && candidate.refused === undefined)
    .toSorted((a, b) => a.requestSeconds - b.requestSeconds)[0];
  if (!split) return 'one rank: no plan for more fits';
  return (
    `one rank: a request takes ${request(pick)}; with the fastest split, ${split.policy} on ${count(split.worldSize, 'rank')}, ${request(split)}: ` +
    `each token waits ${formatSeconds(split.decode.exchangeSeconds)} in ${count(split.decode.exchanges, 'exchange')}`
  );
}

/** 0.0123 -> "12.3 ms", 2.5 -> "2.50 s". */
function formatSeconds(seconds: number): string {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${seconds.toFixed(2)} s`;
}
