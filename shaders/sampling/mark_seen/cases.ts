import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type SamplingProblem, seenWords } from '../params.js';
import { markSeen } from './index.js';
import { markedReference } from './reference.js';

const marked = (name: string, slots: number, vocab: number): KernelCase<SamplingProblem> => ({
  name,
  problem: { slots, vocab, stride: Math.ceil(vocab / 4) * 4, ring: 4 },
  seed: 61,
  step: { rows: slots, chunks: 1 },
  tolerance: { absolute: 0, relative: 0 },
  flops: slots,
  bytes: slots * 20,
  races: slots < 8,
});

export const suite: KernelSuite<typeof markSeen.bindings, typeof markSeen.params, SamplingProblem> = {
  kernel: markSeen,
  cases: [
    marked('control', 5, 70),
    marked('one slot, one token', 1, 1),
    marked('as many slots as a workgroup has threads', 64, 33),
    marked('one slot more', 65, 262144),
  ],
  inputs: ({ slots, vocab }, random) => ({
    tokens: Uint32Array.from({ length: slots }, (_, slot) => (slot === 0 ? vocab - 1 : random.integer(vocab))),
    // Every third is inactive.
    row_info: Uint32Array.from({ length: slots * 2 }, (_, i) =>
      i % 2 === 1 ? i >>> 1 : i % 6 === 4 ? 0xffffffff : random.integer(1000),
    ),
    seen: Uint32Array.from({ length: slots * seenWords(vocab) }, () => random.integer(2 ** 32)),
  }),
  outputs: () => ({}),
  reference: (problem, inputs) => ({ seen: markedReference(problem, inputs) }),
};
