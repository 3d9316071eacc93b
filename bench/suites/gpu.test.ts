import { expect, test, vi } from 'vitest';
import { openDevice } from '../../src/gpu/index.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import { GPU_PARTS, type GpuRequest, gpuTable, runGpu } from './gpu.js';

const adapterName = (await testAdapters()).at(-1)!.name;
const request: GpuRequest = {
  suite: 'gpu',
  adapter: { adapterName },
  models: [],
  load: {},
  parts: ['overheads', 'rates', 'kernels'],
  seconds: 600,
};
const hooks = { signal: new AbortController().signal, onProgress: () => {}, onWarning: () => {} };

test('parts have the ten minutes between them, with names of their own', () => {
  expect(new Set(GPU_PARTS.map(({ name }) => name)).size).toBe(GPU_PARTS.length);
  expect(GPU_PARTS.reduce((sum, { seconds }) => sum + seconds, 0)).toBeLessThanOrEqual(720);
});

test('what time runs out for is left out, and told', async () => {
  const { results, failed } = await runGpu({ ...request, seconds: 1e-6 }, hooks);
  expect(failed).toBe(false);
  expect(results.map(({ part, rows, left_out: why }) => [part, rows.length, why])).toEqual([
    ['overheads', 0, 'out of time'],
    ['rates', 0, 'out of time'],
    ['kernels', 0, 'out of time'],
  ]);
  expect(gpuTable(results)).toContain('Left out: out of time.');
});

test('a part that fails says why, and the others go on', { timeout: 60_000 }, async () => {
  const broken = GPU_PARTS.find(({ name }) => name === 'rates')!;
  const run = vi.spyOn(broken, 'run').mockRejectedValue(new Error('no rates today'));
  const { results, failed, adapters } = await runGpu(request, hooks);
  run.mockRestore();
  expect(failed).toBe(true);
  expect(results.map(({ rows, left_out: why }) => [rows.length > 0, why])).toEqual([
    [true, undefined],
    [false, 'no rates today'],
    [true, undefined],
  ]);
  const device = await openDevice(request.adapter);
  expect(adapters).toEqual([{ ...device.adapter, name: device.name }]);
  device.dispose();
});
