import type { Region } from '../../../distributed/communicator.js';
import { allRows, type Buffer, type RowsOf } from '../../../gpu/index.js';
import { samplingRoutes, vocabHolders, type VocabShare } from '../../../placement/index.js';
import type { RankRecorder, World } from '../world.js';

/** Rows of the output head that a rank's tokens are sampled from, by the ranks that have them, the one that samples first. */
export const headShares = ({ plan, rank, all }: World): VocabShare[] => vocabHolders(all, plan.head, rank);

/**
 * Brings every rank's logits to the root: f32 [rows][logitsStride], each rank's at its rows of the vocabulary. `rowsOf`: a step's rows that
 * are there.
 */
export function recordGatherLogits(
  recorder: RankRecorder,
  world: World,
  logits: Buffer,
  { logitsStride, rowsOf = allRows }: { readonly logitsStride: number; readonly rowsOf?: RowsOf },
): void {
  const routes = samplingRoutes(world.all, world.plan, 'logits');
  world.exchangeRoutes(recorder, 'logits', routes, ({ cargo }, _side, { rows }): Region[] => {
    const [first, end] = (cargo.kind === 'logits' && cargo.share?.rows) || [0, 0];
    return Array.from({ length: rowsOf(rows) }, (_, row) => ({
      buffer: logits,
      offset: (row * logitsStride + first) * 4,
      size: (end - first) * 4,
    }));
  });
}

/**
 * Brings every rank's candidates to the root, which samples: 8 bytes each, [parts][slots][pairs]. A rank's own is its first part; on
 * the root the others' follow in the order of `headShares`.
 */
export function recordGatherCandidates(
  recorder: RankRecorder,
  world: World,
  candidates: Buffer,
  { slots, pairs, rowsOf }: { readonly slots: number; readonly pairs: number; readonly rowsOf: RowsOf },
): void {
  const parts = headShares(world).map(({ rank }) => rank);
  const routes = samplingRoutes(world.all, world.plan, 'candidates');
  world.exchangeRoutes(recorder, 'candidates', routes, ({ from }, side, { rows }) => {
    const part = side === 'receive' ? parts.indexOf(from) : 0;
    return [{ buffer: candidates, offset: part * slots * pairs * 8, size: rowsOf(rows) * pairs * 8 }];
  });
}
