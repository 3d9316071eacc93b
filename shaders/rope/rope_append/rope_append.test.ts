import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { decisions, readKv, rowInfoArray } from '../../attention/fixture.js';
import { keyUnit } from '../../cache/kv_cache.js';
import { type RopeCase, suite } from './cases.js';
import { ropeAppend } from './index.js';
import { ropeAppendReference } from './reference.js';

await testKernel(suite);

const problem: RopeCase = {
  rows: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  qkNorm: true,
  eps: 1e-6,
  kvType: 'f16',
  block: 16,
  tableStride: 4,
  qkvStride: 512,
  rowInfo: [
    [20, 0],
    [21, 0],
  ],
};

test('rope_append refuses shapes it has no layout for', () => {
  expect(() => ropeAppend.plan({ ...problem, qkvStride: 480 }, BASELINE_TRAITS)).toThrow(/qkvStride 480.*at least 512/);
  expect(() => ropeAppend.plan({ ...problem, headDim: 100 }, BASELINE_TRAITS)).toThrow(/head_dim 100/);
  expect(() => ropeAppend.plan({ ...problem, cacheKvHeads: 4, firstKvHead: 3 }, BASELINE_TRAITS)).toThrow(
    /kv heads 3 to 4 of a cache of 4/,
  );
});

for (const adapter of await testAdapters()) {
  describe(`rope_append on ${adapter.name}`, () => {
    test('rounds normalised, rotated keys to the nearest f16s', async () => {
      const device = await adapter.open();
      for (const traits of decisions(device)) {
        const kernel = { ...ropeAppend, plan: (p: RopeCase) => ropeAppend.plan(p, traits) };
        const testCase = { name: 'f16 with norm', problem, seed: 3, flops: 0, bytes: 0, step: { rows: 2, chunks: 1 } };
        const prepared = await device.checked('rope_append', () => prepareCase(device, { ...suite, kernel }, testCase));
        await device.checked('rope_append', () => {
          prepared.reset();
          prepared.run();
        });
        const { k_cache: got } = await prepared.readOutputs(['k_cache']);
        // The same problem with an f32 cache gives the unrounded keys.
        const exact = { ...problem, kvType: 'f32' } as const;
        const cache = new Float32Array(prepared.inputs['k_cache']!.length * 2);
        const want = ropeAppendReference(exact, { ...prepared.inputs, k_cache: cache, v_cache: cache })['k_cache']!;
        let largest = 0;
        for (const [position, slot] of problem.rowInfo as readonly (readonly [number, number])[]) {
          const physical = prepared.inputs['block_table']![slot * problem.tableStride + Math.floor(position / 16)]!;
          for (let head = 0; head < 2; head++) {
            for (let dim = 0; dim < 64; dim++) {
              const unit = keyUnit(problem, physical, head, dim >> 2, position % 16);
              const expected = want[unit * 4 + (dim & 3)]!;
              // WGSL lets packing round to either neighbour: one unit in the last place of 11 bits.
              const ulp = 2 ** (Math.floor(Math.log2(Math.abs(expected))) - 10);
              expect(Math.abs(readKv(problem, got!, unit, dim & 3) - expected), `dim ${dim}`).toBeLessThanOrEqual(
                ulp + 1e-6,
              );
              largest = Math.max(largest, Math.abs(expected));
            }
          }
        }
        expect(largest).toBeGreaterThan(0.5);
        prepared.dispose();
      }
      device.dispose();
    });

    test("a row's bits don't depend on the batch or on the heads that the rank holds", async () => {
      const device = await adapter.open();
      for (const traits of decisions(device)) {
        const run = async (p: RopeCase, row: number, vectors: readonly number[]) => {
          const whole = suite.inputs(problem, new Random(9));
          const at = (vector: number) => row * problem.qkvStride + vector * 64;
          const source = whole['qkv'] as Float32Array;
          const qkv = new Float32Array((p.queryPieces?.length ?? 1) * p.rows * p.qkvStride);
          if (vectors.length === 0) qkv.set(source);
          else
            for (const [i, vector] of vectors.entries()) qkv.set(source.subarray(at(vector), at(vector) + 64), i * 64);
          const kernel = { ...ropeAppend, plan: (q: RopeCase) => ropeAppend.plan(q, traits) };
          const inputs = { ...whole, qkv, row_info: rowInfoArray(p.rowInfo) };
          const testCase = {
            name: 'batch',
            problem: p,
            seed: 9,
            flops: 0,
            bytes: 0,
            step: { rows: p.rows, chunks: 1 },
          };
          const prepared = await device.checked('rope_append', () =>
            prepareCase(device, { ...suite, kernel, inputs: () => inputs }, testCase),
          );
          prepared.reset();
          prepared.run();
          const { qkv: out } = await prepared.readOutputs(['qkv']);
          prepared.dispose();
          return new Uint32Array(out!.buffer);
        };
        const batch = await run(problem, 0, []);
        // The second of two ranks, row 1 alone: q heads 2 and 3, k head 1, v head 1.
        const rank = { ...problem, rows: 1, heads: 2, kvHeads: 1, qkvStride: 256, rowInfo: [problem.rowInfo[1]] };
        const part = await run(rank, 1, [2, 3, 5, 7]);
        expect(part.subarray(0, 128)).toEqual(batch.subarray(512 + 128, 512 + 256));
        // The same row in two pieces, [q][k][v] of a kv head each, with room for rows behind it.
        const queryPieces = [2, 2];
        const padding = Array.from({ length: 4 }, () => 0);
        const order = [0, 1, 4, 6, ...padding, 2, 3, 5, 7];
        const pieces = { ...problem, rows: 2, qkvStride: 256, queryPieces, rowInfo: [problem.rowInfo[1], undefined] };
        const got = await run(pieces, 1, order);
        expect(got.subarray(0, 128)).toEqual(batch.subarray(512, 512 + 128));
        expect(got.subarray(512, 512 + 128)).toEqual(batch.subarray(512 + 128, 512 + 256));
      }
      device.dispose();
    });
  });
}
