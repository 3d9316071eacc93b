import { expect, test } from 'vitest';
import { openDevice, Recorder } from '../../index.js';
import { testAdapters } from '../adapters.js';
import { BASELINE_TRAITS, testKernel } from '../test_kernel.js';
import { suite } from './cases.js';
import { toyScale } from './index.js';

await testKernel(suite);

test('refuses what does not fit', () => {
  expect(() => toyScale.plan({ length: 2 ** 30, factor: 1 }, BASELINE_TRAITS)).toThrow(/at most 16776960: use several/);
});

test('a program runs it twice, the second time on what the first gave', async () => {
  const { name: adapterName } = (await testAdapters()).at(-1)!;
  const device = await openDevice({ adapterName });
  const [x, once, twice] = ['x', 'once', 'twice'].map((label) => device.createBuffer(label, 16));
  const recorder = new Recorder(device, 'toy');
  recorder.dispatch(toyScale, { length: 4, factor: 3 }, { x: x!, out: once! });
  recorder.dispatch(toyScale, { length: 4, factor: 0.5 }, { x: once!, out: twice! });
  const program = recorder.finish();
  device.write(x!, 0, new Float32Array([1, -2, 4, 8]));
  const encoder = device.gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  program.encode(pass, { rows: [1], chunks: 1 });
  pass.end();
  device.gpu.queue.submit([encoder.finish()]);
  expect([...new Float32Array(await device.read(twice!))]).toEqual([1.5, -3, 6, 12]);
  device.dispose();
});
