import type { PlanReport } from '../../../src/index.js';
import type { MeasuredPlan, MeasuredPlans } from './measured_plans.js';
import type { Comparison, Held, TokenTime } from './verdict.js';

/** A plan and its speeds. */
export interface PlanRow {
  readonly plan: string;
  readonly ranks: number;
  readonly predicted: number | undefined;
  readonly measured: number | undefined;
  /** It runs now. */
  readonly current: boolean;
  /** Why it can't. */
  readonly refused: string | undefined;
}

/** What runs now. */
export interface Running {
  readonly plan: string;
  readonly ranks: number;
  /** By rank. */
  readonly held: readonly Held[];
  /** Different GPUs that its ranks are on. */
  readonly gpus: number;
  /** They are the CPU. */
  readonly software: boolean;
}

type Candidates = PlanReport['candidates'];

/** One rank, the plans on as many as may be compared, and whatever ran: the fastest first, after one rank. */
export function planRows(
  candidates: Candidates,
  measured: MeasuredPlans,
  running: Pick<Running, 'plan' | 'ranks'> | undefined,
  ranks: number,
): PlanRow[] {
  const isCurrent = (plan: string, count: number): boolean => running?.plan === plan && running.ranks === count;
  // Plans that can't be made are named beside (`impossiblePlans`).
  const made = candidates.filter(({ plan }) => plan !== undefined);
  const rows: PlanRow[] = made.map((candidate) => ({
    plan: candidate.policy,
    ranks: candidate.worldSize,
    predicted: candidate.plan && candidate.refused === undefined ? candidate.tokensPerSecond : undefined,
    measured: measured.get(candidate.policy, candidate.worldSize)?.tokensPerSecond,
    current: isCurrent(candidate.policy, candidate.worldSize),
    refused: candidate.refused,
  }));
  const others = [...measured.all(), ...(running ? [{ ...running, tokensPerSecond: undefined }] : [])];
  for (const { plan, ranks: count, tokensPerSecond } of others) {
    if (rows.some((row) => row.plan === plan && row.ranks === count)) continue;
    const row = { plan, ranks: count, measured: tokensPerSecond, current: isCurrent(plan, count) };
    rows.push({ ...row, predicted: undefined, refused: undefined });
  }
  const shown = rows.filter(
    (row) => row.ranks === 1 || row.ranks === ranks || row.current || row.measured !== undefined,
  );
  const speed = (row: PlanRow): number => row.measured ?? row.predicted ?? 0;
  return shown.toSorted((a, b) => Number(b.ranks === 1) - Number(a.ranks === 1) || speed(b) - speed(a));
}

/** Policies that make no plan of so many ranks. */
export const impossiblePlans = (candidates: Candidates, ranks: number): readonly string[] =>
  candidates.flatMap(({ policy, worldSize, plan }) => (worldSize === ranks && !plan ? [policy] : []));

/** The fastest plan on so many ranks, as predicted; undefined where none can be. */
export const fastestPlan = (candidates: Candidates, ranks: number): string | undefined =>
  candidates
    .flatMap((each) => (each.worldSize === ranks && each.plan && each.refused === undefined ? [each] : []))
    .toSorted((a, b) => a.requestSeconds - b.requestSeconds)[0]?.policy;

/** What a rank spends of a token's time apart from its own work. */
const besidesOf = ({ exchange, wait }: TokenTime): number => exchange + wait;

/** The plan that runs, otherwise the fastest on so many ranks, against one rank; undefined while a speed is missing. */
export function comparisonOf(
  candidates: Candidates,
  measured: MeasuredPlans,
  running: Running,
  ranks: number,
  /** Different GPUs that so many ranks would be on. */
  gpus: number,
): Comparison | undefined {
  const isMany = running.ranks > 1;
  const count = isMany ? running.ranks : ranks;
  const plan = isMany ? running.plan : (measuredPlan(measured, count)?.plan ?? fastestPlan(candidates, count));
  if (plan === undefined) return undefined;
  const figures = (policy: string, size: number): Figures => {
    const candidate = candidates.find((each) => each.policy === policy && each.worldSize === size);
    return { candidate: candidate?.refused === undefined ? candidate : undefined, run: measured.get(policy, size) };
  };
  const [one, many] = [figures('single', 1), figures(plan, count)];
  const [oneSpeed, manySpeed] = [speedOf(one), speedOf(many)];
  if (!oneSpeed || !manySpeed) return undefined;
  const heldMany = isMany ? fullest(running.held) : heldOf(many);
  const heldOne = isMany ? heldOf(one) : fullest(running.held);
  return {
    ranks: count,
    gpus: isMany ? running.gpus : gpus,
    software: running.software,
    plan,
    one: oneSpeed,
    many: manySpeed,
    besides: besides(many),
    held: heldOne && heldMany && { one: heldOne, many: heldMany },
  };
}

interface Figures {
  readonly candidate: Candidates[number] | undefined;
  readonly run: MeasuredPlan | undefined;
}

/** Of those on so many ranks the fastest that ran. */
const measuredPlan = (measured: MeasuredPlans, ranks: number): MeasuredPlan | undefined =>
  measured
    .all()
    .filter((each) => each.ranks === ranks)
    .toSorted((a, b) => b.tokensPerSecond - a.tokensPerSecond)[0];

function speedOf({ candidate, run }: Figures): Comparison['one'] | undefined {
  if (run) return { tokensPerSecond: run.tokensPerSecond, measured: true };
  return candidate?.plan && { tokensPerSecond: candidate.tokensPerSecond, measured: false };
}

function besides({ candidate, run }: Figures): Comparison['besides'] {
  if (run) return { ms: Math.max(...run.times.map(besidesOf)), ofMs: 1000 / run.tokensPerSecond };
  if (!candidate?.plan) return undefined;
  const { seconds, exchangeSeconds } = candidate.decode;
  return { ms: Math.min(seconds, exchangeSeconds) * 1000, ofMs: seconds * 1000 };
}

const heldOf = ({ candidate }: Figures): Held | undefined => candidate?.plan && fullest(candidate.memory);

const fullest = (ranks: readonly Held[]): Held => ({
  weightBytes: Math.max(...ranks.map(({ weightBytes }) => weightBytes)),
  kvBytes: Math.max(...ranks.map(({ kvBytes }) => kvBytes)),
});
