import { describe, expect, test } from 'vitest';
import { saysCpu } from './cpu_adapter.js';
import { cpuProbe, looksLikeCpu, NARROW, type TimeWorkgroup, WIDE } from './cpu_probe.js';
import { Device } from './device.js';
import { Recorder } from './recorder.js';
import { testAdapters } from './testing/adapters.js';

const info = (given: Partial<GPUAdapterInfo>): Pick<GPUAdapter, 'info'> => ({
  info: { vendor: '', architecture: '', device: '', description: '', ...given } as GPUAdapterInfo,
});

test.each<[string, Pick<GPUAdapter, 'info'>, boolean | undefined]>([
  ['says so', info({ vendor: 'acme', isFallbackAdapter: true }), true],
  ['says that it is a GPU', info({ vendor: 'acme', isFallbackAdapter: false }), false],
  ['as older browsers have it', { ...info({}), isFallbackAdapter: true } as never, true],
  ['WARP without a word', info({ description: 'Microsoft Basic Render Driver' }), true],
  ['a name is believed first', info({ description: 'llvmpipe (LLVM 15)', isFallbackAdapter: false }), true],
  ['SwiftShader by its architecture', info({ vendor: 'google', architecture: 'swiftshader' }), true],
  ['nothing is known', info({ vendor: 'acme', architecture: 'wavefront' }), undefined],
])('a CPU: %s', (_what, adapter, expected) => {
  expect(saysCpu(adapter)).toBe(expected);
});

describe('measured', () => {
  /** An adapter that runs `lanes` invocations at once, a step in `step` seconds, and submits in `submit`; its clock ticks in `tick`. */
  const adapter =
    (lanes: number, step: number, submit: number, tick = 1e-6): TimeWorkgroup =>
    async (threads, steps) =>
      Math.ceil((submit + steps * step * Math.ceil(threads / lanes)) / tick) * tick;

  test.each<[string, TimeWorkgroup, boolean]>([
    ['vectors of 8', adapter(8, 2e-8, 1e-4), true],
    ['vectors of 4', adapter(4, 2e-8, 3e-4), true],
    ['vectors of 16, a slow browser', adapter(16, 2e-8, 4e-3, 1e-4), true],
    ['a GPU', adapter(1024, 6e-8, 1e-4), false],
    ['a small GPU of 96 lanes', adapter(96, 6e-8, 2e-3), false],
    ['waits of 100 ms', adapter(8, 1e-9, 0.05, 0.1), false],
  ])('%s', async (_what, time, expected) => {
    expect(await looksLikeCpu(time)).toBe(expected);
  });

  test('by a kernel that computes what it says', async () => {
    const device = await (await testAdapters()).at(-1)!.open();
    const out = device.createBuffer('out', WIDE * 4);
    for (const threads of [NARROW, WIDE]) {
      for (const steps of [0, 4]) {
        const recorder = new Recorder(device, 'probe');
        await device.checked('probe', () => recorder.dispatch(cpuProbe, { threads, steps }, { out }));
        const encoder = device.gpu.createCommandEncoder();
        const pass = encoder.beginComputePass();
        recorder.finish().encode(pass, { rows: [1], chunks: 1 });
        pass.end();
        device.gpu.queue.submit([encoder.finish()]);
        const values = new Float32Array(await device.read(out, 0, threads * 4));
        expect([...values]).toEqual(Array.from({ length: threads }, (_, i) => (steps === 0 ? i : 2)));
      }
    }
    device.dispose();
  });
});

test('what says nothing is measured, and opened all the same; strict math is asked for where there is such a thing', async () => {
  const [{ nodeGpu }, [adapter]] = await Promise.all([import('./node.js'), testAdapters()]);
  const real = (await (await nodeGpu(adapter!.name)).requestAdapter())!;
  const asked: string[] = [];
  const modules: GPUShaderModuleDescriptor[] = [];
  const silent = {
    features: new Set([...real.features, 'shader-module-compilation-options']),
    limits: real.limits,
    info: { vendor: '', architecture: '', device: 'unnamed', description: '' },
    requestDevice: async ({ requiredFeatures, ...rest }: GPUDeviceDescriptor) => {
      asked.push(...requiredFeatures!);
      const known = [...requiredFeatures!].filter((name) => real.features.has(name));
      const gpu = await real.requestDevice({ ...rest, requiredFeatures: known });
      Object.defineProperty(gpu, 'features', {
        value: new Set([...gpu.features, 'shader-module-compilation-options']),
      });
      const create = gpu.createShaderModule.bind(gpu);
      gpu.createShaderModule = (descriptor) => {
        modules.push(descriptor);
        return create(descriptor);
      };
      return gpu;
    },
  };
  const device = await Device.open(silent as unknown as GPUAdapter);
  expect(device.name).toBe('unnamed');
  expect(device.adapter.variants).toBe(device.adapter.software ? 'software' : 'hardware');
  expect(asked).toContain('shader-module-compilation-options');
  expect(modules.length).toBeGreaterThan(0);
  for (const descriptor of modules) expect(descriptor).toMatchObject({ strictMath: true });
  device.dispose();
});
