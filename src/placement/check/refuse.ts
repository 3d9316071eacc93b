import type { SplitkvError } from '../../base/errors.js';

/** Makes the error for a fault found, saying where it is. */
export type Refuse = (what: string) => SplitkvError;

/** Refuses a list that isn't ascending, or has entries that aren't whole numbers below `limit`. */
export function checkList(list: readonly number[], limit: number, name: string, refuse: Refuse): void {
  for (const [i, value] of list.entries()) {
    if (!Number.isInteger(value) || value < 0 || value >= limit) {
      throw refuse(`${name} has ${value}; ${limit === 0 ? 'this model has none' : `expected 0 to ${limit - 1}`}`);
    }
    if (i > 0 && value <= list[i - 1]!) {
      throw refuse(`${name} has ${value} after ${list[i - 1]}; list each once, in ascending order`);
    }
  }
}
