import type { KernelCase, KernelSuite } from '../kernel_case.js';
import { toyScale, type ToyScaleProblem } from './index.js';
import { toyScaleReference } from './reference.js';

const scaleCase = (name: string, length: number, races = false): KernelCase<ToyScaleProblem> => ({
  name,
  problem: { length, factor: -1.5 },
  seed: 5,
  flops: length,
  bytes: 8 * length,
  races,
});

export const suite: KernelSuite<typeof toyScale.bindings, typeof toyScale.params, ToyScaleProblem> = {
  kernel: toyScale,
  cases: [scaleCase('control', 64, true), scaleCase('one element', 1), scaleCase('uneven tail', 1003)],
  inputs: ({ length }, random) => ({ x: random.normals(length, 1) }),
  outputs: ({ length }) => ({ out: { type: 'f32', length } }),
  reference: (problem, { x }) => ({ out: toyScaleReference(problem, x!) }),
};
