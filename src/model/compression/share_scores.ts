import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import type { Exchange, Region, Transfer } from '../../distributed/communicator.js';
import type { StepShape } from '../../gpu/index.js';
import { keepsCacheOnly } from '../../placement/index.js';
import type { StageTopology } from '../topology.js';
import type { SharedScores } from './prompt_compression.js';

type Place = Pick<StageTopology, 'share' | 'peers' | 'dealt' | 'stage'>;

/** Every weight group's scores go to the rank of each other group that works on the same rows: as far as the step's sequence goes. */
export function scoreTransfers(
  place: Place,
  { buffer, stride }: Pick<SharedScores, 'buffer' | 'stride'>,
  step: Pick<StepShape, 'chunks'>,
): Omit<Exchange, 'label'> {
  const size = Math.min(stride, step.chunks * CHUNK_TOKENS) * 4;
  const regions = (heads: readonly number[]): Region[] =>
    heads.map((head) => ({ buffer, offset: head * stride * 4, size }));
  const scorers = scorersOf(place).filter(({ heads }) => heads.length > 0);
  const own = scorers.find(({ rank }) => rank === place.share.rank)!;
  const others = scorers.filter((scorer) => scorer !== own);
  return {
    sends: others.map(({ rank }): Transfer => ({ peer: rank, regions: regions(own.heads) })),
    receives: others.map(({ rank, heads }): Transfer => ({ peer: rank, regions: regions(heads) })),
  };
}

/** By weight group, the rank that attends for the group's heads to the sequences of this one: the group's own, or its follower. */
function scorersOf({ stage, peers, dealt }: Place): { readonly rank: number; readonly heads: readonly number[] }[] {
  return peers.map(({ rank, heads, kvHeads }) => {
    if (!dealt || dealt.index === 0) return { rank, heads };
    const followers = stage.shares.filter((share) => keepsCacheOnly(share) && share.kvHeads.join() === kvHeads.join());
    return { rank: followers[dealt.index - 1]!.rank, heads };
  });
}
