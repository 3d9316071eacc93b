import { range, sum } from '../../base/lists.js';
import { CHUNK_TOKENS, localTokens } from '../owner.js';
import { sequenceRanges } from '../sequences/sequence_ranges.js';
import type { ModelShape } from '../plan.js';
import type { CargoWidths } from '../routes.js';
import type { ModelSizes } from '../memory.js';

/**
 * One generated row of each of `slots` sequences that are `length` tokens long.
 * @param entries that each head has of them, [layer][kv head]; default all
 */
export function generatedRows(slots: number, length: number, entries?: readonly (readonly number[])[]): StepRows {
  const chunks = Math.ceil(length / CHUNK_TOKENS);
  return {
    role: 'generated',
    rows: slots,
    // The first sequence to come.
    ...(slots === 1 && { offsets: [0] }),
    splitRows: (split) => range(0, split).map(() => slots),
    sharded: (weights) => sequenceRanges(weights, slots).map(([first, end]) => end - first),
    attended: (split) => {
      if (slots === 1 || length === 0) return range(0, split).map((index) => localTokens(length, split, index, 0));
      // Offsets spread the sequences' chunks as even as can be.
      const even = Math.floor((slots * chunks) / split);
      const surplus = (slots * chunks) % split;
      return range(0, split).map((index) => ((even + (index < surplus ? 1 : 0)) * length) / chunks);
    },
    left: entries?.map((heads) => heads.map((own) => Math.min(1, own / Math.max(1, length)))),
    chunks,
  };
}

/** Prompt rows at positions first .. first + rows - 1 of a sequence; or of several at once, which are sharded over as many ranks. */
export function promptRows(first: number, rows: number, prompts = 1): StepRows {
  return {
    role: 'prompt',
    rows: prompts * rows,
    ...(prompts === 1 && { offsets: [0] }),
    splitRows: (split) => splitRows(first, first + rows, split),
    // Nothing else is placed: each goes to the rank that is to have the most sequences, of equals the later one (`sequenceRanges`).
    sharded: (weights) => {
      const order = [...weights.keys()].toSorted((a, b) => weights[b]! - weights[a]! || b - a);
      return weights.map((_, index) => (order.indexOf(index) < prompts ? rows : 0));
    },
    attended: (split) =>
      range(0, split).map(
        (index) =>
          prompts * sum(range(first + 1, first + rows + 1).map((length) => localTokens(length, split, index, 0))),
      ),
    chunks: Math.ceil((first + rows) / CHUNK_TOKENS),
  };
}

/** Rows at positions [first, end) that each of `split` ranks runs where it runs its own chunks' rows. */
const splitRows = (first: number, end: number, split: number): number[] =>
  range(0, split).map((index) => localTokens(end, split, index, 0) - localTokens(first, split, index, 0));

/** The steps of a prompt, or of several at once: as long as none of the ranks that split its rows gets more than `chunkRows`. */
export function promptSteps(length: number, chunkRows: number, rowSplit: number, prompts = 1): StepRows[] {
  // Split rows are whole chunks where the prompt is long enough.
  const most = rowSplit === 1 ? chunkRows : Math.max(chunkRows, CHUNK_TOKENS);
  const steps: StepRows[] = [];
  for (let first = 0; first < length;) {
    let end = Math.min(first + most, length);
    while (end < length && Math.max(...splitRows(first, end + 1, rowSplit)) <= most) end++;
    steps.push(promptRows(first, end - first, prompts));
    first = end;
  }
  return steps;
}

/** What a model asks of a machine, a row at a time. */
export interface ModelWork {
  readonly shape: ModelShape;
  readonly sizes: ModelSizes;
  /** Dispatches of a step besides its layers: embedding, head, sampling. */
  readonly stepDispatches: number;
  /** Experts that a token is routed to; 0 without experts. */
  readonly expertsPerToken: number;
  /** Of what travels between ranks. */
  readonly widths: CargoWidths;
}

/** Rows that run together through the layers. */
export interface StepRows {
  readonly role: 'generated' | 'prompt';
  readonly rows: number;
  /** Rows of each of `split` replicas that prompt rows are split over by the owner of their chunk. */
  readonly splitRows: (split: number) => readonly number[];
  /** Rows of each of some ranks that whole sequences are sharded over, in proportion to these weights. */
  readonly sharded: (weights: readonly number[]) => readonly number[];
  /** Sum over rows of the cached tokens each attends to, of the chunks that each of `split` ranks owns. */
  readonly attended: (split: number) => readonly number[];
  /** Of those tokens, the part that a head still has, [layer][kv head]: its prompt was compressed. Default: all. */
  readonly left?: readonly (readonly number[])[] | undefined;
  /** Chunks of the longest sequence. */
  readonly chunks: number;
  /** Offsets of the sequences, which say who has their first chunks; undefined where there may be any. */
  readonly offsets?: readonly number[];
}
