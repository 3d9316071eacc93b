import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { PLACES, rowInfoOf, SLOTS } from '../fixture.js';
import { deltaRule, type DeltaRuleProblem } from './index.js';
import { deltaRuleReference } from './reference.js';

function ruleCase(
  name: string,
  rows: number,
  [keyHeads, ratio, keyDim, valueDim]: readonly [number, number, number, number],
  oneRun = false,
  { plain = false, ...more }: Partial<KernelCase<DeltaRuleProblem>> & Pick<DeltaRuleProblem, 'plain'> = {},
): KernelCase<DeltaRuleProblem> {
  const columns = keyHeads * ratio * valueDim;
  const stride = alignUp(2 * keyHeads * keyDim + columns, 32);
  return {
    name,
    problem: { rows, oneRun, keyHeads, ratio, keyDim, valueDim, plain, stride, outStride: alignUp(columns, 32) },
    seed: 37,
    step: { rows, chunks: 1 },
    flops: rows * columns * keyDim * 7,
    bytes: columns * keyDim * 8 + rows * (stride + columns) * 4,
    tolerance: { absolute: 3e-6, relative: 3e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof deltaRule.bindings, typeof deltaRule.params, DeltaRuleProblem> = {
  kernel: deltaRule,
  cases: [
    ruleCase('control', 5, [2, 2, 8, 12], false, { races: true }),
    ruleCase('control, plain', 5, [2, 2, 8, 12], false, { races: true, plain: true }),
    ruleCase('one key head, one value head', 1, [1, 1, 4, 4]),
    ruleCase('runs of several slots', 13, [3, 1, 24, 20]),
    ruleCase('prompt that goes on', 21, [2, 3, 16, 40], true),
    ruleCase('prompt from its beginning', 64, [2, 2, 32, 32], true),
    ruleCase('plain prompt, one key head', 37, [1, 6, 32, 16], true, { plain: true }),
    ruleCase('widest keys', 2, [1, 1, 256, 36]),
    ruleCase('decode 16 heads of 128', 1, [16, 1, 128, 128]),
    ruleCase('plain decode, 48 heads of 32', 1, [1, 48, 128, 32], false, { plain: true }),
    ruleCase('prompt 128, 4 heads of 128', 128, [2, 2, 128, 128], true),
  ],
  inputs: ({ rows, oneRun, keyHeads, ratio, keyDim, valueDim, stride, outStride }, random) => {
    const valueHeads = keyHeads * ratio;
    const qkv = random.normals(rows * stride);
    // Heads of q and k are normalised.
    for (let row = 0; row < rows; row++) {
      for (let head = 0; head < 2 * keyHeads; head++) {
        const first = row * stride + head * keyDim;
        const own = qkv.subarray(first, first + keyDim);
        const length = Math.hypot(...own);
        own.forEach((value, i) => (own[i] = value / length));
      }
    }
    const gates = Float32Array.from({ length: rows * valueHeads * 2 }, (_, i) =>
      i % 2 === 0 ? 1 - 0.2 * random.next() : random.next(),
    );
    return {
      qkv,
      gates,
      row_info: rowInfoOf(rows, oneRun).rowInfo,
      places: PLACES,
      state: random.normals(SLOTS * valueHeads * keyDim * valueDim, 0.3),
      out: random.normals(rows * outStride),
    };
  },
  outputs: () => ({}),
  reference: deltaRuleReference,
};
