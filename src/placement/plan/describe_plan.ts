import { grouped } from '../../base/math.js';
import { layersName } from '../check/check_plan.js';
import { count, range, sameList, showList, sum } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import { isKvOnly, type ModelShape, type Plan, type RankShare, type VocabShare } from '../plan.js';

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
  const held = (list: readonly number[], sizes: readonly number[]): number => sum(list.map((item) => sizes[item]!));
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
