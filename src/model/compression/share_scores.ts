import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import type { Exchange, Region, Transfer } from '../../distributed/communicator.js';
import type { StepShape } from '../../gpu/index.js';
import { isKvOnly } from '../../placement/index.js';
import type { StageTopology } from '../topology.js';
import type { SharedScores } from './prompt_compression.js';

type Place = Pick<StageTopology, 'share' | 'peers' | 'dealt' | 'stage'>;

/** Where heads are copied: the rank that keeps the step's sequence of a head. */
type Owner = (head: number) => number;

/** Every weight group's scores go to the rank of each other group that works on the same rows: as far as the step's sequence goes. */
export function scoreTransfers(
  place: Place,
  { buffer, stride }: Pick<SharedScores, 'buffer' | 'stride'>,
  step: Pick<StepShape, 'chunks'>,
  owner?: Owner,
): Omit<Exchange, 'label'> {
  const size = Math.min(stride, step.chunks * CHUNK_TOKENS) * 4;
  const regions = (heads: readonly number[]): Region[] =>
    heads.map((head) => ({ buffer, offset: head * stride * 4, size }));
  const own = { rank: place.share.rank, heads: [] as readonly number[] };
  const others: { readonly rank: number; readonly heads: readonly number[] }[] = [];
  for (const { rank, heads } of scorersOf(place)) {
    // Ranks without any of the layer's heads compress nothing there.
    if (heads.length === 0) continue;
    const scored = owner ? heads.filter((head) => owner(head) === rank) : heads;
    if (rank === own.rank) own.heads = scored;
    else others.push({ rank, heads: scored });
  }
  return {
    sends: others.map(({ rank }): Transfer => ({ peer: rank, regions: regions(own.heads) })),
    receives: others.map(({ rank, heads }): Transfer => ({ peer: rank, regions: regions(heads) })),
  };
}

/** By weight group, the rank that attends for the group's heads to the sequences of this one: the group's own, or its follower. */
function scorersOf({ stage, peers, dealt }: Place): { readonly rank: number; readonly heads: readonly number[] }[] {
  return peers.map(({ rank, heads, kvHeads }) => {
    if (!dealt || dealt.place === 0) return { rank, heads };
    const followers = stage.shares.filter((share) => isKvOnly(share) && share.kvHeads.join() === kvHeads.join());
    return { rank: followers[dealt.place - 1]!.rank, heads };
  });
}
