import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { COPY_PIECE, copyRate, type CopyRateProblem } from './index.js';
import { copyRateReference } from './reference.js';

const copyCase = (pieces: number, races = false): KernelCase<CopyRateProblem> => ({
  name: `${pieces} pieces`,
  problem: { bytes: pieces * COPY_PIECE },
  seed: 5,
  tolerance: { absolute: 0, relative: 0 },
  flops: 0,
  bytes: 2 * pieces * COPY_PIECE,
  races,
});

export const suite: KernelSuite<typeof copyRate.bindings, typeof copyRate.params, CopyRateProblem> = {
  kernel: copyRate,
  cases: [copyCase(1, true), copyCase(7)],
  inputs: ({ bytes }, random) => ({ start: random.normals(bytes / 4) }),
  outputs: ({ bytes }) => ({ out: { type: 'f32', length: bytes / 4 } }),
  reference: (_problem, { start }) => ({ out: copyRateReference(start!) }),
};
