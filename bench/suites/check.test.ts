import { expect, test, vi } from 'vitest';
import { isTurn } from '../../src/gpu/testing/draw.js';
import { runSuite } from '../run_suite.js';
import type { KernelCheck } from './check.js';

// One kernel's reference is made wrong: as if the GPU were.
vi.mock('../kernel_suites.js', async (original) => {
  const suites = await original<typeof import('../kernel_suites.js')>();
  return {
    ...suites,
    async loadKernelSuite(folder: string) {
      const suite = await suites.loadKernelSuite(folder);
      if (folder !== 'norm/rms_norm') return suite;
      const reference: typeof suite.reference = (problem, inputs) =>
        Object.fromEntries(
          Object.entries(suite.reference(problem, inputs)).map(([name, values]) => [
            name,
            Array.from(values, (value) => value + 1),
          ]),
        );
      return { ...suite, reference };
    },
  };
});

const hooks = { signal: new AbortController().signal, onProgress: () => {}, onWarning: () => {} };
const check = (kernel: string, model = 'models/tiny-gqa') =>
  runSuite({ suite: 'check', kernel, adapter: {}, model, load: {}, runs: 1 }, hooks);

test.runIf(isTurn(2, 'wrong kernels'))(
  'a kernel that is wrong is told with its cases, and the rest goes on',
  { timeout: 120_000 },
  async () => {
    const run = await check('/r');
    expect(run.failed).toBe(true);
    const results = run.results as readonly KernelCheck[];
    const wrong = results.filter((result) => result.wrong.length > 0);
    expect(wrong.map(({ kernel }) => kernel)).toEqual(['rms_norm']);
    expect(wrong[0]!.wrong).toHaveLength(wrong[0]!.cases);
    const kernels = ['reduce_segments', 'relative_attention', 'rms_norm', 'rope_append'];
    expect(results.map(({ kernel }) => kernel).toSorted()).toEqual(kernels);
    const { cases } = wrong[0]!;
    expect(run.table).toContain(
      `${results.length - 1} of ${results.length} kernels right, wrong: rms_norm (${cases} of ${cases}) | tiny-gqa`,
    );
    expect(run.table).toMatch(/rms_norm +\d+ +\d+ wrong/);
    expect(run.measurements.map(({ metric }) => metric)).toEqual([
      'decode',
      'time to first token',
      'prefill',
      'kernel time',
    ]);
  },
);

test('a model that is not there is an error', async () => {
  await expect(check('mlp/', 'models/nosuch')).rejects.toThrow(/no config.json|nosuch/);
});
