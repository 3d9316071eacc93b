import type { FmaRateProblem } from './index.js';

const CHAINS = 8;

/** Float64, straight from the equation; the four lanes of a chain are alike. */
export const fmaRateReference = ({ steps, factor, addend }: FmaRateProblem, start: ArrayLike<number>): number[] =>
  Array.from(start, (first) => {
    let sum = 0;
    for (let chain = 0; chain < CHAINS; chain++) {
      let x = first + chain / CHAINS;
      for (let step = 0; step < steps; step++) x = x * factor + addend;
      sum += 4 * x;
    }
    return sum;
  });
