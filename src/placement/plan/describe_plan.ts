import { formatBytes, grouped } from '../../base/math.js';
import { layersName } from '../check/check_plan.js';
import { count, nth, range, sameList, showList, sum } from '../../base/lists.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../owner.js';
import { type ModelShape, type Plan, type RankShare, type VocabShare, isKvOnly, planName } from '../plan.js';
import { alignedTable } from '../../base/aligned_table.js';
import type { PlanCandidate, PlanPrediction } from '../planner.js';
import { planTopology } from '../topology.js';

/** A plan as lines for people: which layers, heads, cache and vocabulary rows each rank holds. */
export function describePlan(plan: Plan, shape: ModelShape): string[] {
  const lines = [`plan ${plan.policy} on ${count(plan.worldSize, 'rank')}`];
  for (const stage of plan.stages) {
    lines.push(`${layersName(stage)}:`);
    for (const share of stage.shares) lines.push(`  rank ${share.rank}: ${describeShare(share, shape)}`);
  }
  lines.push(`embedding: ${describeRows(plan.embedding, shape)}`, `head: ${describeRows(plan.head, shape)}`);
  return lines;
}

function describeShare(share: RankShare, shape: ModelShape): string {
  const isSplit = share.lanes.length < MERGE_LANES;
  const whose = isSplit ? 'of its own and of the ranks with its other lanes' : 'of its own';
  const sequences = share.sequences === undefined ? '' : ` of sequences ${whose} (weight ${share.sequences})`;
  if (isKvOnly(share) && share.sequences === 0) return 'nothing: no sequences of its own (weight 0)';
  if (isKvOnly(share)) return `no weights, cache${isSplit ? ` in lanes ${share.lanes.join(' ')}` : ''}${sequences}`;
  const { segmentHeads, mlpSegments, numExperts, latent } = shape;
  const held = (list: readonly number[], sizes: readonly number[]): number => sum(list.map((item) => nth(sizes, item)));
  const copied = (share.copies ?? []).map(({ head, share: own }) => `${head} (${Math.round(own * 100)}%)`);
  const parts = [
    `query heads ${part(held(share.heads, segmentHeads), sum(segmentHeads))}${latent ? '' : ` (kv heads ${showList(share.heads)})`}`,
  ];
  if (copied.length > 0) parts.push(`copies of ${copied.join(', ')}`);
  const columns = sum(mlpSegments);
  if (columns > 0) parts.push(`MLP columns ${part(held(share.mlp, mlpSegments), columns)}`);
  if (numExperts > 0) {
    parts.push(share.experts.length === numExperts ? 'all experts' : `experts ${showList(share.experts)}`);
  }
  parts.push(share.sequences === 0 ? 'no cache' : `cache of ${describeCache(share, shape)}${sequences}`);
  return parts.join(', ');
}

function describeCache({ kvHeads, lanes }: RankShare, shape: ModelShape): string {
  const heads = shape.latent
    ? 'the latent'
    : sameList(kvHeads, range(0, shape.kvHeads))
      ? 'all kv heads'
      : `kv heads ${showList(kvHeads)}`;
  return lanes.length === MERGE_LANES ? heads : `${heads} in lanes ${lanes.join(' ')}`;
}

const part = (held: number, total: number): string =>
  held === total ? `all ${grouped(total)}` : `${grouped(held)} of ${grouped(total)}`;

function describeRows(shares: readonly VocabShare[], { vocabSize }: ModelShape): string {
  const whole = shares.filter(({ rows: [first, end] }) => first === 0 && end === vocabSize).map(({ rank }) => rank);
  if (whole.length === shares.length) {
    return `all ${grouped(vocabSize)} rows on ${whole.length === 1 ? 'rank' : 'ranks'} ${showList(whole)}`;
  }
  return shares.map(({ rank, rows: [first, end] }) => `rank ${rank} rows ${first}-${end - 1}`).join(', ');
}

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
  for (const { policy, worldSize, refused, plan } of worthTelling(candidates)) {
    // A reason from makePlan names plan and ranks itself.
    lines.push(`- ${plan === undefined ? refused : `${policy} on ${count(worldSize, 'rank')}: ${refused}`}`);
  }
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

/** What to tell whoever asked for ranks that split sequences, where some have nothing of one, however long it gets. */
export function idleOfSplit(plan: Plan, contextLength: number): string | undefined {
  // Where MLP segments are cut over the same ranks, all have work.
  const split = Math.max(...planTopology(plan).stages.map((stage) => (stage.cutsColumns ? 1 : stage.split)));
  const chunks = Math.ceil(contextLength / CHUNK_TOKENS);
  const busy = Math.min(split, chunks, MERGE_LANES);
  if (busy === split) return undefined;
  const why =
    chunks < Math.min(split, MERGE_LANES)
      ? `a context of ${contextLength} tokens, shorter than ${split} x ${CHUNK_TOKENS}, has ${count(chunks, 'chunk')}`
      : `a sequence has ${MERGE_LANES} merge lanes`;
  return (
    `${planName(plan)}: ${split} ranks split each sequence by chunks of ${CHUNK_TOKENS} tokens, and ${why}: ` +
    `${count(split - busy, 'rank')} of them ${split - busy === 1 ? 'has' : 'have'} nothing of one. Several sequences at once begin on ` +
    `different ranks; for one use ${busy === 1 ? 'another plan' : `${busy} ranks`}`
  );
}
