import { nth, range, sum } from '../base/lists.js';
import { CHUNK_TOKENS, firstLane, heldChunks, MERGE_LANES, mostLanes } from '../base/kv_units.js';

export { CHUNK_TOKENS, MERGE_LANES };

/**
 * Who holds which chunk of a sequence. A stage whose cache is split S ways along the sequence numbers its holders 0 .. S - 1; lane l of a
 * sequence with offset o, which is chunks l, l + 8, ..., is held by index (l + o) mod S. The offset moves lanes between ranks, never
 * chunks between lanes: chunk c is of lane c mod 8 whatever the offset, so no plan and no offset changes a bit.
 *
 * Ranks hold whole lanes. Where S doesn't divide 8 some have a lane more than others, and of more than 8 ranks some have none; offsets
 * take turns at which those are.
 */

/**
 * The merge lanes of index `index` of `split` before an offset rotates them, ascending. Beyond 8 ranks one number each: those from 8 on
 * are of lanes that only an offset brings there.
 */
export const lanesOf = (split: number, index: number): number[] =>
  split > MERGE_LANES ? [index] : range(0, mostLanes(MERGE_LANES - index, split)).map((i) => index + i * split);

export const chunkOwner = (chunk: number, split: number, offset: number): number =>
  ((chunk % MERGE_LANES) + offset) % split;

/** Tokens of a sequence of `length` tokens that index `index` holds. */
export function localTokens(length: number, split: number, index: number, offset: number): number {
  const whole = Math.floor(length / CHUNK_TOKENS);
  const rest = chunkOwner(whole, split, offset) === index ? length % CHUNK_TOKENS : 0;
  return heldChunks(whole, split, firstLane(split, index, offset)) * CHUNK_TOKENS + rest;
}

/** Whole chunks of room that every index needs for one sequence of `length` tokens, whatever its offset. */
export const localChunks = (length: number, split: number): number =>
  heldChunks(Math.ceil(length / CHUNK_TOKENS), split, 0);

/** As `localChunks`, for any `chunks` chunks in a row, wherever in a sequence they begin. */
export function localChunksOfRun(chunks: number, split: number): number {
  const turns = Math.floor(chunks / MERGE_LANES);
  const inRun = (first: number, index: number): number =>
    range(first, first + (chunks % MERGE_LANES)).filter((chunk) => chunkOwner(chunk, split, 0) === index).length;
  const rest = range(0, MERGE_LANES).flatMap((first) => range(0, split).map((index) => inRun(first, index)));
  return turns * mostLanes(MERGE_LANES, split) + Math.max(...rest);
}

/**
 * The offset for a new sequence of `newChunks` chunks that leaves the indices' totals as even as can be, and its next chunk with
 * the least loaded. Offset 0 for every sequence would give index 0 every surplus chunk, and lane.
 *
 * @param chunksPerIndex chunks that each index holds now; its length is the split
 */
export function leastLoadedOffset(chunksPerIndex: readonly number[], newChunks: number): number {
  const split = chunksPerIndex.length;
  const loads = range(0, split).map((offset) => {
    const after = chunksPerIndex.map(
      (chunks, index) => chunks + heldChunks(newChunks, split, firstLane(split, index, offset)),
    );
    const squares = sum(after.map((chunks) => chunks * chunks));
    return { offset, order: [Math.max(...after), squares, nth(after, chunkOwner(newChunks, split, offset))] };
  });
  return loads.reduce((best, next) => (isLess(next.order, best.order) ? next : best)).offset;
}

function isLess(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((value, i) => value !== b[i]);
  return at >= 0 && nth(a, at) < nth(b, at);
}
