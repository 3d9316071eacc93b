import type { Iteration, RankLimits, ScheduledSequence } from '../index.js';
import type { Sequence } from '../sequence.js';

/**
 * What the KV blocks hold, block by block and token by token, when iterations run in the order they were scheduled: a number that
 * stands for all tokens up to that position and for the kind of row each was computed by. A row that would attend to anything but
 * its own sequence's tokens throws.
 */
export class KvModel {
  readonly #ranks: Map<number, Float64Array>[];

  constructor(
    private readonly limits: readonly RankLimits[],
    private readonly blockTokens: number,
    private readonly chunkTokens: number,
    /** The token of a sequence at a position, generated ones included, whether the scheduler knows it yet or not. */
    private readonly tokenAt: (id: string, position: number) => number,
  ) {
    this.#ranks = limits.map(() => new Map());
  }

  run({ ranks }: Iteration): void {
    for (const [rank, { moves }] of ranks.entries()) {
      for (const { from, to } of moves) {
        for (const [index, block] of from.blocks.entries()) {
          this.#block(rank, to[index]!).set(this.#block(from.rank, block));
        }
      }
    }
    for (const [rank, work] of ranks.entries()) {
      for (const sequence of work.tables) this.#checkLanes(rank, sequence);
      for (const { from, to, tokens } of work.copies) {
        const source = this.#block(rank, from);
        const target = this.#block(rank, to);
        target.fill(Number.NaN);
        target.set(source.subarray(0, tokens));
      }
      for (const { sequence, start } of work.handed) {
        // Whole blocks are written.
        const first = start - (start % this.blockTokens);
        const end = sequence.prompt.length;
        for (let position = first; position < end; position++) this.#write(rank, sequence, position);
        this.#check(rank, sequence, end);
      }
      for (const { sequence, start, count } of work.prefills) {
        for (let position = start; position < start + count; position++) this.#write(rank, sequence, position);
        this.#check(rank, sequence, start + count);
      }
      for (const sequence of work.decodes) {
        this.#write(rank, sequence, sequence.computed - 1);
        this.#check(rank, sequence, sequence.computed);
      }
    }
  }

  /** Every block is of its chunk's lane. */
  #checkLanes(rank: number, { id, blocks, offset }: ScheduledSequence): void {
    const { numBlocks, lanes = 1 } = this.limits[rank]!;
    for (const [at, block] of blocks.entries()) {
      const lane = (Math.floor((at * this.blockTokens) / this.chunkTokens) + offset) % lanes;
      if (Math.floor((block * lanes) / numBlocks) !== lane) throw new Error(`${id}: block ${at} isn't of lane ${lane}`);
    }
  }

  #block(rank: number, block: number): Float64Array {
    let content = this.#ranks[rank]!.get(block);
    if (!content) {
      content = new Float64Array(this.blockTokens).fill(Number.NaN);
      this.#ranks[rank]!.set(block, content);
    }
    return content;
  }

  #write(rank: number, sequence: ScheduledSequence, position: number): void {
    const block = sequence.blocks[Math.floor(position / this.blockTokens)];
    if (block === undefined) throw new Error(`${sequence.id}: no block for position ${position}`);
    this.#block(rank, block)[position % this.blockTokens] = this.#content(sequence, position + 1).at(-1)!;
  }

  #check(rank: number, sequence: ScheduledSequence, length: number): void {
    for (const [position, expected] of this.#content(sequence, length).entries()) {
      const block = sequence.blocks[Math.floor(position / this.blockTokens)]!;
      const found = this.#block(rank, block)[position % this.blockTokens]!;
      if (found !== expected) {
        throw new Error(
          `${sequence.id}: position ${position} in block ${block} of rank ${rank} holds ${found}, not ${expected}`,
        );
      }
    }
  }

  #content(sequence: ScheduledSequence, length: number): number[] {
    const { id } = sequence;
    let hash = 17;
    return Array.from({ length }, (_, position) => {
      const role = (sequence as Sequence).roleAt(position) === 'prompt' ? 0 : 1;
      hash = (hash * 31 + this.tokenAt(id, position) * 2 + role + 1) % 1_000_000_007;
      return hash;
    });
  }
}
