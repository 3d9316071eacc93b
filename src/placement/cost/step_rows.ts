import { range } from '../lists.js';
import { CHUNK_TOKENS, localTokens } from '../owner.js';
import type { StepRows } from './work.js';

/** One generated row of each of `slots` sequences that are `length` tokens long. */
export function generatedRows(slots: number, length: number): StepRows {
  const chunks = Math.ceil(length / CHUNK_TOKENS);
  return {
    role: 'generated',
    rows: slots,
    ownRows: () => slots,
    // Offsets spread the sequences' chunks, so that the fullest rank has one chunk more than the emptiest at most.
    attended: (split) => Math.min(Math.ceil((slots * chunks) / split) * CHUNK_TOKENS, slots * length),
    chunks,
  };
}

/** Prompt rows at positions first .. first + rows - 1 of a sequence. */
export function promptRows(first: number, rows: number): StepRows {
  const most = (split: number, of: (index: number) => number): number =>
    Math.max(...range(0, split).map((index) => of(index)));
  return {
    role: 'prompt',
    rows,
    ownRows: (split) => ownRows(first, first + rows, split),
    attended: (split) =>
      most(split, (index) => {
        let tokens = 0;
        for (let length = first + 1; length <= first + rows; length++) tokens += localTokens(length, split, index, 0);
        return tokens;
      }),
    chunks: Math.ceil((first + rows) / CHUNK_TOKENS),
  };
}

/** Rows at positions [first, end) that one of `split` ranks runs where each runs its own chunks' rows: the most of any. */
function ownRows(first: number, end: number, split: number): number {
  const of = (index: number): number => localTokens(end, split, index, 0) - localTokens(first, split, index, 0);
  return Math.max(...range(0, split).map(of));
}

/** The steps of a prompt: as long as none of the ranks that split its rows gets more than `chunkRows`. */
export function promptSteps(length: number, chunkRows: number, rowSplit: number): StepRows[] {
  // Split rows are whole chunks where the prompt is long enough.
  const most = rowSplit === 1 ? chunkRows : Math.max(chunkRows, CHUNK_TOKENS);
  const steps: StepRows[] = [];
  for (let first = 0; first < length;) {
    let end = first + most;
    while (end < length && ownRows(first, end + 1, rowSplit) <= most) end++;
    end = Math.min(end, length);
    steps.push(promptRows(first, end - first));
    first = end;
  }
  return steps;
}
