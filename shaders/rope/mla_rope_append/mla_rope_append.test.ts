import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { q8Faults } from '../../attention/fixture.js';
import { readLatent } from '../../cache/kv_vector.js';
import { latentTokenBytes, latentUnit, latentWidth } from '../../cache/latent_cache.js';
import { suite } from './cases.js';
import { mlaRopeAppend } from './index.js';
import { appendedLatent } from './reference.js';

await testKernel(suite);

test('mla_rope_append refuses shapes it has no layout for', () => {
  const { problem } = suite.cases[0]!;
  expect(() => mlaRopeAppend.plan({ ...problem, kvLoraRank: 1032 }, BASELINE_TRAITS)).toThrow(/kv_lora_rank 1032/);
  expect(() => mlaRopeAppend.plan({ ...problem, qkRopeHeadDim: 12 }, BASELINE_TRAITS)).toThrow(/qk_rope_head_dim 12/);
  expect(() => mlaRopeAppend.plan({ ...problem, qkNopeHeadDim: 10 }, BASELINE_TRAITS)).toThrow(/qk_nope_head_dim 10/);
  expect(() => mlaRopeAppend.plan({ ...problem, kvOffset: 6 }, BASELINE_TRAITS)).toThrow(/kvOffset 6/);
});

for (const adapter of await adaptersInTurn('mla_rope_append rows')) {
  describe(`mla_rope_append on ${adapter.name}`, () => {
    test('writes its rows, rounded to the cache type, and nothing else', async () => {
      const device = await adapter.open();
      const looked = suite.cases.filter(({ problem }) => problem.kvType !== 'f32' || !problem.latents);
      for (const testCase of looked) {
        const { problem } = testCase;
        const inputs = suite.inputs(problem, new Random(9));
        const given = { ...suite, inputs: () => inputs };
        const results: Record<string, Uint8Array[]> = { latent_cache: [], q_abs: [] };
        for (const traits of decisions(device)) {
          const kernel = { ...mlaRopeAppend, plan: (p: typeof problem) => mlaRopeAppend.plan(p, traits) };
          const prepared = await device.checked('append', () => prepareCase(device, { ...given, kernel }, testCase));
          prepared.reset();
          prepared.run();
          const { latent_cache: cache, q_abs: qAbs } = await prepared.readOutputs(['latent_cache', 'q_abs']);
          prepared.dispose();
          for (const [name, array] of Object.entries({ latent_cache: cache!, q_abs: qAbs! })) {
            results[name]!.push(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
          }
          let written = 0;
          for (const [row, info] of problem.rowInfo.entries()) {
            if (!info || problem.elsewhere?.includes(info[1])) continue;
            const physical =
              inputs['block_table']![info[1] * problem.tableStride + Math.floor(info[0] / problem.block)]!;
            const relative = problem.kvType === 'f32' ? 1e-5 : 2 ** -10;
            const offset = info[0] % problem.block;
            const wanted = appendedLatent(problem, inputs, row);
            const bytes = problem.kvType === 'q8' ? problem.kvLoraRank : 0;
            if (bytes > 0) {
              const at = (unit: number): number => latentUnit(problem, physical, unit, offset);
              expect(q8Faults(cache!, at, wanted.slice(0, bytes)), `${testCase.name}, row ${row}`).toEqual([]);
            }
            const got = readLatent(problem, cache!, physical, offset);
            for (const [i, want] of wanted.entries()) {
              const error = Math.abs(got[i]! - want);
              if (i >= bytes) expect(error, `row ${row}, element ${i}`).toBeLessThan(1e-5 + relative * Math.abs(want));
            }
            written += latentTokenBytes(problem) / 4;
          }
          const before = inputs['latent_cache']!;
          const changed = new Uint32Array(cache!.buffer).filter(
            (word, i) => word !== new Uint32Array(before.buffer, i * 4, 1)[0],
          );
          expect(changed.length).toBe(written);
          const rows = problem.rowInfo.filter(Boolean).length;
          const own = problem.heads * problem.qkRopeHeadDim + (problem.latents === 'kept' ? latentWidth(problem) : 0);
          expect((qAbs as Float32Array).filter((x) => !Number.isNaN(x)).length).toBe(
            problem.latents === 'ready' ? 0 : rows * own,
          );
        }
        // The same bits whatever the number of threads.
        for (const all of Object.values(results)) for (const one of all) expect(Buffer.compare(one, all[0]!)).toBe(0);
      }
      device.dispose();
    });
  });
}
