import type { Iteration, RankLimits, ScheduledSequence } from '../index.js';
import type { Sequence } from '../sequence.js';

/** Of some tokens. */
interface State {
  readonly length: number;
  readonly content: number;
}

/**
 * What the KV blocks hold, block by block and token by token, when iterations run in the order they were scheduled: a number that
 * stands for all tokens up to that position and for the kind of row each was computed by. A row that would attend to anything but
 * its own sequence's tokens throws.
 */
export class KvModel {
  readonly #ranks: Map<number, Float64Array>[];
  /** Of layers with windows. */
  readonly #windows: Map<number, Float64Array>[];
  /** By rank: blocks of whole prompts. */
  readonly #prompts: Map<number, Float64Array>[];
  /** By rank: the state in each slot and each kept one, as the number of its last token; a state takes every token once, in order. */
  readonly #states: { readonly slots: Map<number, State>; readonly kept: Map<number, State> }[];

  constructor(
    private readonly limits: readonly RankLimits[],
    private readonly blockTokens: number,
    private readonly chunkTokens: number,
    /** The token of a sequence at a position, generated ones included, whether the scheduler knows it yet or not. */
    private readonly tokenAt: (id: string, position: number) => number,
    /** Sequences have a state: `SchedulerOptions.keptStates`. */
    private readonly hasState = false,
  ) {
    this.#ranks = limits.map(() => new Map());
    this.#windows = limits.map(() => new Map());
    this.#prompts = limits.map(() => new Map());
    this.#states = limits.map(() => ({ slots: new Map(), kept: new Map() }));
  }

  run({ ranks }: Iteration): void {
    for (const [rank, { moves }] of ranks.entries()) {
      for (const { from, to, toWindows } of moves) {
        for (const [index, block] of from.blocks.entries()) {
          this.#block(rank, to[index]!).set(this.#block(from.rank, block));
        }
        for (const [index, block] of from.windows.blocks.entries()) {
          this.#block(rank, toWindows.blocks[index]!, true).set(this.#block(from.rank, block, true));
        }
      }
    }
    for (const [rank, work] of ranks.entries()) {
      for (const sequence of work.tables) this.#checkLanes(rank, sequence);
      for (const { from, to, tokens, windows } of work.copies) {
        this.#copy(rank, from, to, tokens);
        if (windows) this.#copy(rank, windows.from, windows.to, tokens, true);
      }
      for (const { sequence, first, blocks } of work.restoredPrompts) {
        for (const [at, block] of blocks.entries()) {
          this.#block(rank, sequence.blocks[first + at]!).set(this.#prompts[rank]!.get(block)!);
        }
      }
      for (const { sequence, place } of work.restored) {
        this.#states[rank]!.slots.set(sequence.slot, this.#states[rank]!.kept.get(place)!);
      }
      for (const { sequence, start, end } of work.handed) {
        // Whole blocks are written.
        const first = start - (start % this.blockTokens);
        for (let position = first; position < end; position++) this.#write(rank, sequence, position);
        if (this.hasState) {
          const content = this.#content(sequence, end).at(-1)!;
          this.#states[rank]!.slots.set(sequence.slot, { length: end, content });
        }
        // The next row sees them.
        this.#check(rank, sequence, end, end);
      }
      for (const { sequence, start, count } of work.prefills) {
        this.#advance(rank, sequence, start, start + count);
        for (let position = start; position < start + count; position++) this.#write(rank, sequence, position);
        this.#check(rank, sequence, start + count, start);
      }
      for (const sequence of work.decodes) {
        this.#advance(rank, sequence, sequence.computed - 1, sequence.computed);
        this.#write(rank, sequence, sequence.computed - 1);
        this.#check(rank, sequence, sequence.computed, sequence.computed - 1);
      }
      for (const { sequence, place } of work.kept) {
        this.#states[rank]!.kept.set(place, this.#states[rank]!.slots.get(sequence.slot)!);
      }
      for (const { sequence, first, blocks } of work.keptPrompts) {
        for (const [at, block] of blocks.entries()) {
          this.#prompts[rank]!.set(block, this.#block(rank, sequence.blocks[first + at]!).slice());
        }
      }
    }
  }

  #advance(rank: number, sequence: ScheduledSequence, start: number, end: number): void {
    if (!this.hasState) return;
    const { slots } = this.#states[rank]!;
    const found = start === 0 ? { length: 0, content: 0 } : slots.get(sequence.slot);
    const content = this.#content(sequence, end);
    if (found?.length !== start || found.content !== (content[start - 1] ?? 0))
      throw new Error(
        `${sequence.id}: the state in slot ${sequence.slot} of rank ${rank} isn't that of its ${start} tokens`,
      );
    slots.set(sequence.slot, { length: end, content: content[end - 1]! });
  }

  /** Every block is of its chunk's lane. */
  #checkLanes(rank: number, { id, blocks, windows, offset }: ScheduledSequence): void {
    const { numBlocks, lanes = 1, windows: limits } = this.limits[rank]!;
    const check = (at: number, block: number, all: number): void => {
      const lane = (Math.floor((at * this.blockTokens) / this.chunkTokens) + offset) % lanes;
      if (Math.floor((block * lanes) / all) !== lane) throw new Error(`${id}: block ${at} isn't of lane ${lane}`);
    };
    for (const [at, block] of blocks.entries()) check(at, block, numBlocks);
    for (const [at, block] of windows.blocks.entries()) check(windows.first + at, block, limits!.numBlocks);
  }

  #block(rank: number, block: number, windowed = false): Float64Array {
    const blocks = (windowed ? this.#windows : this.#ranks)[rank]!;
    let content = blocks.get(block);
    if (!content) {
      content = new Float64Array(this.blockTokens).fill(Number.NaN);
      blocks.set(block, content);
    }
    return content;
  }

  #copy(rank: number, from: number, to: number, tokens: number, windowed = false): void {
    const source = this.#block(rank, from, windowed).slice(0, tokens);
    this.#block(rank, to, windowed).fill(Number.NaN).set(source);
  }

  #write(rank: number, sequence: ScheduledSequence, position: number): void {
    const at = Math.floor(position / this.blockTokens);
    const block = sequence.blocks[at];
    if (block === undefined) throw new Error(`${sequence.id}: no block for position ${position}`);
    const content = this.#content(sequence, position + 1).at(-1)!;
    this.#block(rank, block)[position % this.blockTokens] = content;
    const { first, blocks } = sequence.windows;
    const windowed = blocks[at - first];
    // What was computed elsewhere is written as far as it is seen.
    if (windowed !== undefined) this.#block(rank, windowed, true)[position % this.blockTokens] = content;
  }

  /** What rows from position `row` on, the last one at `length` - 1, attend to. */
  #check(rank: number, sequence: ScheduledSequence, length: number, row: number): void {
    const seen = row + 1 - (this.limits[rank]!.windows?.tokens ?? 0);
    for (const [position, expected] of this.#content(sequence, length).entries()) {
      const at = Math.floor(position / this.blockTokens);
      const check = (block: number | undefined, windowed: boolean): void => {
        const found = block === undefined ? undefined : this.#block(rank, block, windowed)[position % this.blockTokens];
        if (found === expected) return;
        throw new Error(
          `${sequence.id}: position ${position} in block ${block} of rank ${rank} holds ${found}, not ${expected}` +
            (windowed ? ', in a window' : ''),
        );
      };
      check(sequence.blocks[at], false);
      if (!this.limits[rank]!.windows || position < seen) continue;
      check(sequence.windows.blocks[at - sequence.windows.first], true);
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
