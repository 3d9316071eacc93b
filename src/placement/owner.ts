import { CHUNK_TOKENS, MERGE_LANES } from '../base/kv_units.js';

export { CHUNK_TOKENS, MERGE_LANES };

/**
 * Who holds which chunk of a sequence. A stage whose cache is split S ways along the sequence numbers its holders 0 .. S - 1
 * (`laneSplit`); chunk c of a sequence with offset o is held by index (c + o) mod S. The offset moves chunks between ranks, never
 * between merge lanes: chunk c is of lane c mod 8 whatever the offset, so no plan and no offset changes a bit.
 */

/** A rank's lanes as a residue class: `lanes` are those with lane mod `split` = `index`; undefined for any other list. */
export function laneSplit(lanes: readonly number[]): { readonly split: number; readonly index: number } | undefined {
  const split = MERGE_LANES / lanes.length;
  const index = lanes[0];
  if (index === undefined || !Number.isInteger(split) || index >= split) return undefined;
  return lanes.every((lane, i) => lane === index + i * split) ? { split, index } : undefined;
}

/** The merge lanes of index `index` of `split` before an offset rotates them, ascending. */
export const lanesOf = (split: number, index: number): number[] =>
  Array.from({ length: MERGE_LANES / split }, (_, i) => index + i * split);

/** The index that holds a chunk. */
export const chunkOwner = (chunk: number, split: number, offset: number): number => (chunk + offset) % split;

/** Tokens of a sequence of `length` tokens that index `index` holds. */
export function localTokens(length: number, split: number, index: number, offset: number): number {
  const turn = split * CHUNK_TOKENS;
  const rest = (length % turn) - residue(split, index, offset) * CHUNK_TOKENS;
  return Math.floor(length / turn) * CHUNK_TOKENS + Math.min(Math.max(rest, 0), CHUNK_TOKENS);
}

/** Whole chunks of room that every index needs for one sequence of `length` tokens, whatever its offset. */
export const localChunks = (length: number, split: number): number =>
  Math.ceil(Math.ceil(length / CHUNK_TOKENS) / split);

/**
 * The offset for a new sequence of `newChunks` chunks that leaves the indices' totals as even as can be, and its next chunk with
 * the least loaded. Offset 0 for every sequence would give index 0 every surplus chunk.
 *
 * @param chunksPerIndex chunks that each index holds now; its length is the split
 */
export function leastLoadedOffset(chunksPerIndex: readonly number[], newChunks: number): number {
  const split = chunksPerIndex.length;
  const surplus = newChunks % split;
  let best = 0;
  let bestLoad = [Infinity];
  for (let offset = 0; offset < split; offset++) {
    const after = chunksPerIndex.map((chunks, index) => chunks + (residue(split, index, offset) < surplus ? 1 : 0));
    const load = [
      Math.max(...after),
      after.reduce((sum, chunks) => sum + chunks * chunks, 0),
      after[chunkOwner(newChunks, split, offset)]!,
    ];
    if (isLess(load, bestLoad)) [best, bestLoad] = [offset, load];
  }
  return best;
}

/** The chunks that index `index` holds are those congruent to this mod `split`. */
const residue = (split: number, index: number, offset: number): number => (index + split - (offset % split)) % split;

function isLess(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((value, i) => value !== b[i]);
  return at >= 0 && a[at]! < b[at]!;
}
