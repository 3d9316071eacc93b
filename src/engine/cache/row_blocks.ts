import { CHUNK_TOKENS, chunkOwner } from '../../placement/index.js';

/** Where the rows of prompt positions [start, end) go when they are split over `blocks` ranks by the owner of their chunk. */
export class RowBlocks {
  readonly counts: readonly number[];

  constructor(
    readonly blocks: number,
    readonly offset: number,
    readonly start: number,
    readonly end: number,
  ) {
    const counts = Array.from({ length: blocks }, () => 0);
    for (const run of chunkRuns(start, end)) counts[this.blockOf(run.start)]! += run.count;
    this.counts = counts;
  }

  blockOf(position: number): number {
    return this.blocks === 1 ? 0 : chunkOwner(Math.floor(position / CHUNK_TOKENS), this.blocks, this.offset);
  }

  /** Row of a position in its block: the positions of a block are in ascending order. */
  rowOf(position: number): number {
    if (this.blocks === 1) return position - this.start;
    let row = 0;
    const block = this.blockOf(position);
    for (const run of chunkRuns(this.start, position)) if (this.blockOf(run.start) === block) row += run.count;
    return row;
  }
}

/** Positions [start, end) cut at chunk boundaries. */
function* chunkRuns(start: number, end: number): Generator<{ readonly start: number; readonly count: number }> {
  for (let at = start; at < end;) {
    const next = Math.min(end, (Math.floor(at / CHUNK_TOKENS) + 1) * CHUNK_TOKENS);
    yield { start: at, count: next - at };
    at = next;
  }
}

/** The end of a step that begins at `start`: no block gets more than `rows` rows. */
export function stepEnd(blocks: number, offset: number, start: number, end: number, rows: number): number {
  if (blocks === 1) return Math.min(end, start + rows);
  const room = Array.from({ length: blocks }, () => rows);
  for (const run of chunkRuns(start, end)) {
    const block = chunkOwner(Math.floor(run.start / CHUNK_TOKENS), blocks, offset);
    if (run.count > room[block]!) return run.start + room[block]!;
    room[block]! -= run.count;
  }
  return end;
}
