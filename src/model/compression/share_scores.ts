import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import type { Exchange, Region, Transfer } from '../../distributed/communicator.js';
import type { StepShape } from '../../gpu/index.js';
import type { RankShare } from '../../placement/plan.js';
import type { StageTopology } from '../topology.js';
import type { SharedScores } from './prompt_compression.js';

/** Every weight group's scores go to the rank of each other group that works on the same rows: as far as the step's sequence goes. */
export function scoreTransfers(
  { share, peers }: Pick<StageTopology, 'share' | 'peers'>,
  { buffer, stride }: Pick<SharedScores, 'buffer' | 'stride'>,
  step: Pick<StepShape, 'chunks'>,
): Omit<Exchange, 'label'> {
  const size = Math.min(stride, step.chunks * CHUNK_TOKENS) * 4;
  const regions = ({ heads }: RankShare): Region[] =>
    heads.map((head) => ({ buffer, offset: head * stride * 4, size }));
  const others = peers.filter((peer) => peer !== share);
  return {
    sends: others.map(({ rank }): Transfer => ({ peer: rank, regions: regions(share) })),
    receives: others.map((peer): Transfer => ({ peer: peer.rank, regions: regions(peer) })),
  };
}
