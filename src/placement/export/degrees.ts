import { sameList } from '../../base/lists.js';
import { hasGap, isKvOnly, type ModelShape, pipelineRuns, type Plan, type RankShare, type Stage } from '../plan.js';

/** A plan in the degrees that other engines take, as far as it has such. Of a pipeline's stage, where stages are alike. */
export interface PlanDegrees {
  /** Stages of layers on ranks of their own. */
  readonly pipeline: number;
  /** Layers of each of them. */
  readonly layers: readonly number[];
  /** Ranks of a stage. */
  readonly ranks: number;
  /** Ways that heads are cut over the ranks that hold weights (in each of the data-parallel groups). */
  readonly tensor: number;
  /** Ways that a sequence's cache is split along the sequence. */
  readonly sequence: number;
  /** Groups of ranks that run the rows of their own sequences. */
  readonly data: number;
  /** Ranks that keep caches and hold no weights. */
  readonly kvOnly: number;
  /** MLP segments are cut over ranks. */
  readonly cutsMlp: boolean;
  /** Of a model with experts: not every rank with weights holds all of them. */
  readonly spreadsExperts: boolean;
  /** Heads that lie elsewhere than in even runs of neighbours. */
  readonly arranged: boolean;
  /** Heads that several ranks hold, added up over layers. */
  readonly copiedHeads: number;
  /** Stages of a pipeline share their layers in different ways: this is the one with most ranks. */
  readonly mixed: boolean;
}

type StageDegrees = Omit<PlanDegrees, 'pipeline' | 'layers' | 'mixed'>;

/** Reads who holds what, not the policy's name: plans of any maker have degrees. */
export function planDegrees(plan: Plan, shape: ModelShape): PlanDegrees {
  const runs = pipelineRuns(plan).map((run) => run.map((at) => plan.stages[at]!));
  const degrees = runs.map((stages) => runDegrees(stages, shape));
  const [widest] = degrees.toSorted((a, b) => b.ranks - a.ranks) as [StageDegrees];
  const form = ({ copiedHeads: _, ...rest }: StageDegrees): string => JSON.stringify(rest);
  return {
    ...widest,
    copiedHeads: degrees.reduce((total, { copiedHeads }) => total + copiedHeads, 0),
    pipeline: runs.length,
    layers: runs.map((stages) => stages.at(-1)!.layers[1] - stages[0]!.layers[0]),
    mixed: degrees.some((other) => form(other) !== form(widest)),
  };
}

function runDegrees(stages: readonly Stage[], { numExperts }: ModelShape): StageDegrees {
  const shares = stages.flatMap((stage) => stage.shares);
  const ranks = new Set(shares.map(({ rank }) => rank));
  const withWeights = new Set(shares.filter((share) => !isKvOnly(share)).map(({ rank }) => rank));
  const holders = shares.filter((share) => !isKvOnly(share));
  const arranged = stages.some(({ kind, shares: own }) => kind === 'arranged' && own.some(isPlaced));
  const cuts = stages.map(stageCut);
  const [cut] = cuts as [StageCut];
  return {
    ranks: ranks.size,
    ...cut,
    ...(arranged && { tensor: withWeights.size / cut.data }),
    kvOnly: ranks.size - withWeights.size,
    cutsMlp: holders.some(({ mlp }) => !sameList(mlp, holders[0]!.mlp)),
    spreadsExperts: numExperts > 0 && holders.some(({ experts }) => experts.length < numExperts),
    arranged,
    copiedHeads: stages.reduce((total, { layers: [first, end], shares: own }) => {
      const copied = new Set(own.flatMap(({ copies = [] }) => copies.map(({ head }) => head)));
      return total + copied.size * (end - first);
    }, 0),
  };
}

/** As no even cut into runs of neighbours has it. */
const isPlaced = ({ heads, copies, mlp }: RankShare): boolean =>
  copies !== undefined || hasGap(heads) || (heads.length === 0) !== (mlp.length === 0);

interface StageCut {
  readonly tensor: number;
  readonly sequence: number;
  readonly data: number;
}

function stageCut({ kind, shares }: Stage): StageCut {
  const roots = shares.filter(({ heads }) => heads.length > 0);
  const alike = roots.filter(({ heads }) => sameList(heads, roots[0]!.heads));
  const keepers = shares.filter(({ lanes, sequences }) => lanes.length > 0 && sequences !== 0);
  return {
    tensor: distinct(roots.map(({ heads }) => heads)),
    sequence: Math.max(1, distinct(keepers.map(({ lanes }) => lanes))),
    data: kind === 'adp' ? alike.length / distinct(alike.map(({ lanes }) => lanes)) : 1,
  };
}

const distinct = (lists: readonly (readonly number[])[]): number => new Set(lists.map((list) => list.join())).size;
