import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { deltaHeads, type DeltaHeadsProblem } from './index.js';
import { deltaHeadsReference } from './reference.js';

function headsCase(
  name: string,
  rows: number,
  [keyHeads, ratio, keyDim, valueDim]: readonly [number, number, number, number],
  { plain = false, ...more }: Partial<KernelCase<DeltaHeadsProblem>> & Pick<DeltaHeadsProblem, 'plain'> = {},
): KernelCase<DeltaHeadsProblem> {
  const values = keyHeads * ratio;
  const [keys, bOffset] = [2 * keyHeads * keyDim, 2 * keyHeads * keyDim + 2 * values * valueDim];
  const stride = alignUp(keys + values * valueDim, 32);
  const inputStride = alignUp(bOffset + 2 * values, 32);
  return {
    name,
    problem: { rows, keyHeads, ratio, keyDim, valueDim, plain, stride, inputStride, bOffset },
    seed: 41,
    step: { rows, chunks: 1 },
    flops: rows * (keys * 3 + values * 40),
    bytes: rows * (keys * 8 + values * 16),
    tolerance: { absolute: 1e-7, relative: 3e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof deltaHeads.bindings, typeof deltaHeads.params, DeltaHeadsProblem> = {
  kernel: deltaHeads,
  cases: [
    headsCase('control', 2, [2, 2, 8, 12], { races: true }),
    headsCase('plain, 48 value heads', 3, [1, 48, 16, 4], { races: true, plain: true }),
    headsCase('one head of 4', 1, [1, 1, 4, 4]),
    headsCase('more value heads than threads', 3, [2, 40, 24, 4]),
    headsCase('widest keys', 2, [3, 1, 256, 8]),
    headsCase('decode 16 heads of 128', 1, [16, 2, 128, 128]),
    headsCase('prompt 128', 128, [16, 1, 128, 128]),
  ],
  inputs: ({ rows, keyHeads, ratio, stride, inputStride, bOffset }, random) => {
    const valueHeads = keyHeads * ratio;
    const inputs = random.normals(rows * inputStride, 3);
    // A token that is nearly kept for ever, one that forgets all, and large ones of either sign.
    for (const [i, a] of [-30, 40, -90, 90].entries()) {
      if (i < valueHeads) inputs[bOffset + valueHeads + i] = a;
      if (i < valueHeads) inputs[bOffset + i] = -a;
    }
    const qkv = random.normals(rows * stride);
    qkv.fill(0, 0, 4);
    return {
      inputs,
      rates: Float32Array.from({ length: valueHeads }, () => 16 * random.next()),
      dt_bias: random.normals(valueHeads),
      qkv,
    };
  },
  outputs: ({ rows, keyHeads, ratio }) => ({ gates: { type: 'f32', length: rows * keyHeads * ratio * 2 } }),
  reference: deltaHeadsReference,
};
