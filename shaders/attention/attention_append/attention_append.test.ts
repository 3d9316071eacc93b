import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import type { HostArray, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite as ropeSuite } from '../../rope/rope_append/cases.js';
import { suite as splitSuite } from '../attention_split/cases.js';
import { bits, caseStep, runOn } from '../fixture.js';
import { suite } from './cases.js';
import { attentionAppend } from './index.js';

await testKernel(suite);

const pick = (arrays: HostArrays, names: readonly string[]): HostArrays =>
  Object.fromEntries(names.map((name) => [name, arrays[name]!]));

describe('attention_append', () => {
  const { problem } = suite.cases.find(({ name }) => name === '14/2 d64 f16')!;

  test('refuses shapes it has no layout for', () => {
    const plan = (changes: object) => () => attentionAppend.plan({ ...problem, ...changes }, BASELINE_TRAITS);
    expect(plan({ headDim: 36 })).toThrow(/attention_append: head_dim 36/);
    expect(plan({ heads: 15 })).toThrow(/attention_append: 15 query heads/);
    expect(plan({ qkvStride: 1088 })).toThrow(/attention_append: qkvStride 1088/);
    expect(plan({ rotary: 12 })).toThrow(/attention_append: 12 of 64 elements are rotated/);
    expect(plan({ slidingWindow: 0 })).toThrow(/attention_append: a window of 0 keys/);
    expect(plan({ maxChunks: 0 })).toThrow(/attention_append: maxChunks 0/);
    expect(plan({ cacheKvHeads: 2, firstKvHead: 1 })).toThrow(/kv heads 1 to 2 of a cache of 2/);
  });
});

await describeOnAdapters('attention_append', (device, isQuickest) => {
  const small = suite.cases.filter(({ large }) => large !== true);

  test('writes what rope_append and attention_split do, bit for bit', { timeout: 300_000 }, async () => {
    const traits = { ...device().traits, software: false };
    for (const { name, problem, seed } of drawn(small, isQuickest ? 3 : 1, `pair ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const step = caseStep(problem);
      const caches = ['k_cache', 'v_cache'];
      const outputs = Object.keys(suite.outputs(problem));
      const got = await runOn(device(), suite, problem, inputs, step, traits, [...outputs, ...caches]);
      const rope = await runOn(device(), ropeSuite, problem, inputs, step, traits, ['qkv', ...caches]);
      const { row_info, block_table } = inputs as Record<string, HostArray>;
      const attended = { row_info: row_info!, block_table: block_table!, q: rope['qkv']!, ...pick(rope, caches) };
      const queries = { ...problem, qStride: problem.qkvStride };
      const split = await runOn(device(), splitSuite, queries, attended, step, traits);
      for (const [output, expected] of Object.entries({ ...split, ...pick(rope, caches) })) {
        const { length } = expected;
        expect(bits(got[output]!, 0, length), `${output} of '${name}'`).toEqual(bits(expected, 0, length));
      }
    }
  });
});
