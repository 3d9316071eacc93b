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
    ownRows: (split) =>
      most(split, (index) => localTokens(first + rows, split, index, 0) - localTokens(first, split, index, 0)),
    attended: (split) =>
      most(split, (index) => {
        let tokens = 0;
        for (let length = first + 1; length <= first + rows; length++) tokens += localTokens(length, split, index, 0);
        return tokens;
      }),
    chunks: Math.ceil((first + rows) / CHUNK_TOKENS),
  };
}
