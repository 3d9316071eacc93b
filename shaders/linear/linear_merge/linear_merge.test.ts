import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import type { Device } from '../../../src/gpu/device.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { attentionMerge } from '../../attention/attention_merge/index.js';
import { outputGate, type OutputGateProblem } from '../../attention/output_gate/index.js';
import { linear } from '../linear/index.js';
import { outLength } from '../reference.js';
import { runOnce } from '../testing/run.js';
import { suite } from './cases.js';
import { canMerge, linearMerge } from './index.js';
import { gateProblem, linearProblem, mergeProblem } from './reference.js';

await testKernel(suite);

/** output_gate alone, on x. */
async function opened(
  device: Device,
  problem: OutputGateProblem,
  inputs: HostArrays & { readonly x: Float32Array },
): Promise<Float32Array> {
  const kernel = { ...outputGate, bindings: { gate: 'read', out: 'read_write' } as const };
  const bits = await runOnce(device, kernel, problem, { gate: inputs['gate']!, out: inputs.x }, inputs.x.length, false);
  return new Float32Array(bits.buffer, bits.byteOffset, bits.length);
}

await describeOnAdapters('linear_merge', (device) => {
  const small = suite.cases.filter(({ large }) => large !== true);

  test('gives the bits of attention_merge, output_gate and linear', { timeout: 300_000 }, async () => {
    for (const { name, problem, seed } of drawn(small, Math.ceil(small.length / 6), `pair ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const { partial_o, partial_ml, row_info, gate, ...matrix } = inputs;
      const partials = { partial_o: partial_o!, partial_ml: partial_ml!, row_info: row_info! };
      const once = { ...problem, rows: 1 };
      const both = linearProblem(problem);
      const got = await runOnce(device(), linearMerge, once, inputs, outLength(both), false);
      const merge = mergeProblem(problem);
      const merged = await runOnce(device(), attentionMerge, merge, partials, merge.outStride, false);
      // Padding isn't written: zero, as in a buffer that begins so.
      const x = new Float32Array(merge.outStride);
      x.set(new Float32Array(merged.buffer, merged.byteOffset, problem.inFeatures));
      if (gate) x.set(await opened(device(), gateProblem(problem), { gate, x }));
      const expected = await runOnce(device(), linear, both, { ...matrix, x }, outLength(both), false);
      expect(got, name).toEqual(expected);
    }
  });
});

describe('linear_merge refuses', () => {
  const { problem } = suite.cases.find(({ name }) => name === 'tiny')!;
  const plan = (changes: object) => () => linearMerge.plan({ ...problem, ...changes }, BASELINE_TRAITS);

  test('a row that does not fit the workgroup memory, as canMerge says', () => {
    expect(canMerge(3584, 32, BASELINE_TRAITS)).toBe(true);
    expect(canMerge(4096, 32, BASELINE_TRAITS)).toBe(false);
    const wide = { segments: { total: 32, align: 8 }, headDim: 128 };
    expect(plan({ ...wide, inFeatures: 3584 })).not.toThrow();
    expect(plan({ ...wide, inFeatures: 4096 })).toThrow(
      /linear_merge: inFeatures 4096 .* of 16384; use attention_merge/,
    );
  });

  test('what are not heads', () => {
    expect(plan({ headDim: 12 })).toThrow(/inFeatures 16 aren't heads of 12/);
  });
});
