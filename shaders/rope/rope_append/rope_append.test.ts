import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { q8Faults, rowEntries, rowInfoArray } from '../../attention/fixture.js';
import { blockShape, HEAD_TABLE_LEAD, headTable } from '../../cache/head_tables.js';
import { kvCacheBytes, keyUnit, NO_BLOCK, storedUnits, valueUnit } from '../../cache/kv_cache.js';
import { readKvVector } from '../../cache/kv_vector.js';
import { type RopeCase, suite, UNTOUCHED } from './cases.js';
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

/** Compares q8 caches with what the reference puts into f32 caches. */
function checkBytes(of: RopeCase, inputs: HostArrays, outputs: HostArrays, name: string): void {
  const exact = { ...of, kvType: 'f32' } as const;
  const { headDim, kvHeads, block, firstKvHead = 0 } = of;
  const shape = blockShape(of);
  const blocks = inputs['k_cache']!.byteLength / kvCacheBytes(shape, 1);
  const empty = new Float32Array(kvCacheBytes(blockShape(exact), blocks) / 4);
  const want = ropeAppendReference(exact, { ...inputs, k_cache: empty, v_cache: empty });
  for (const [cache, unitOf] of [
    ['k_cache', keyUnit],
    ['v_cache', valueUnit],
  ] as const) {
    let words = 0;
    for (const info of of.rowInfo) {
      for (let head = firstKvHead; info && head < firstKvHead + kvHeads; head++) {
        const entry = rowEntries(of, info, head) - 1;
        const table = headTable(of, info[1], head) + (of.perHead ? HEAD_TABLE_LEAD : 0);
        const physical = inputs['block_table']![table + Math.floor(entry / block)]!;
        if (physical === NO_BLOCK) continue;
        const atOf =
          (layout: typeof shape) =>
          (unit: number): number =>
            unitOf(layout, physical, of.perHead ? 0 : head, unit, entry % block);
        const expected = readKvVector('f32', Float32Array.from(want[cache]!), atOf(blockShape(exact)), headDim);
        expect(q8Faults(outputs[cache]!, atOf(shape), expected), `${name}, ${cache} of ${info!.join(', ')}`).toEqual(
          [],
        );
        words += storedUnits(headDim, 'q8');
      }
    }
    expect((outputs[cache] as Uint32Array).filter((word) => word !== UNTOUCHED.packed).length, name).toBe(words);
    expect(words).toBeGreaterThan(0);
  }
}

for (const adapter of await adaptersInTurn('rope_append rows')) {
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
            const at = (unit: number): number => keyUnit(problem, physical, head, unit, position % 16);
            for (const [dim, value] of readKvVector('f16', got!, at, 64).entries()) {
              const expected = want[at(dim >> 2) * 4 + (dim & 3)]!;
              // WGSL lets packing round to either neighbour: one unit in the last place of 11 bits.
              const ulp = 2 ** (Math.floor(Math.log2(Math.abs(expected))) - 10);
              expect(Math.abs(value - expected), `dim ${dim}`).toBeLessThanOrEqual(ulp + 1e-6);
              largest = Math.max(largest, Math.abs(expected));
            }
          }
        }
        expect(largest).toBeGreaterThan(0.5);
        prepared.dispose();
      }
      device.dispose();
    });

    test('clamps what the type of the cache can’t hold, and keeps signs', async () => {
      const device = await adapter.open();
      for (const kvType of ['f16', 'q8'] as const) {
        const of: RopeCase = { ...problem, qkNorm: false, kvType };
        const given = suite.inputs(of, new Random(5));
        // Beyond what f16 holds, and what 127 times a scale in f16 does; a vector of small numbers stays exact.
        const beyond = kvType === 'f16' ? 1e6 : 1e9;
        const largest = kvType === 'f16' ? 65504 : 127 * 65504;
        const qkv = (given['qkv'] as Float32Array).map((x, i) => (i < of.qkvStride ? Math.sign(x) * beyond : x));
        for (const traits of decisions(device)) {
          const kernel = { ...ropeAppend, plan: (p: RopeCase) => ropeAppend.plan(p, traits) };
          const testCase = { name: 'clamped', problem: of, seed: 5, flops: 0, bytes: 0, step: { rows: 2, chunks: 1 } };
          const inputs = () => ({ ...given, qkv });
          const prepared = await device.checked('rope_append', () =>
            prepareCase(device, { ...suite, kernel, inputs }, testCase),
          );
          prepared.reset();
          prepared.run();
          const { v_cache: cache } = await prepared.readOutputs(['v_cache']);
          prepared.dispose();
          for (const [row, [position, slot]] of (of.rowInfo as readonly (readonly [number, number])[]).entries()) {
            const physical = given['block_table']![slot * of.tableStride + Math.floor(position / 16)]!;
            for (let head = 0; head < 2; head++) {
              const at = (unit: number): number => valueUnit(of, physical, head, unit, position % 16);
              const from = row * of.qkvStride + (6 + head) * 64;
              const got = Array.from(readKvVector(kvType, cache!, at, 64));
              const want = Array.from(qkv.subarray(from, from + 64));
              if (row === 0) expect(got).toEqual(want.map((x) => Math.sign(x) * largest));
              else for (const [i, x] of want.entries()) expect(Math.abs(got[i]! - x)).toBeLessThan(0.05);
            }
          }
        }
      }
      device.dispose();
    });

    test('q8: writes the nearest bytes with the least scales, and nothing else', async () => {
      const device = await adapter.open();
      for (const testCase of suite.cases.filter((c) => c.problem.kvType === 'q8')) {
        const of = testCase.problem;
        const inputs = suite.inputs(of, new Random(testCase.seed));
        const results: Uint32Array[] = [];
        for (const traits of decisions(device)) {
          const kernel = { ...ropeAppend, plan: (p: RopeCase) => ropeAppend.plan(p, traits) };
          const prepared = await device.checked('rope_append', () =>
            prepareCase(device, { ...suite, kernel, inputs: () => inputs }, testCase),
          );
          prepared.reset();
          prepared.run();
          const outputs = await prepared.readOutputs(['k_cache', 'v_cache']);
          prepared.dispose();
          checkBytes(of, inputs, outputs, testCase.name);
          results.push(...Object.values(outputs).map((out) => new Uint32Array(out.buffer)));
        }
        // The same bits whatever the number of threads.
        for (const [i, words] of results.entries()) expect(words).toEqual(results[i % 2]);
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
