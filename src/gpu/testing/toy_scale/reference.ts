import type { ToyScaleProblem } from './index.js';

export const toyScaleReference = ({ factor }: ToyScaleProblem, x: ArrayLike<number>): number[] =>
  Array.from(x, (value) => factor * value);
