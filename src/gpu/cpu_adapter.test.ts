import { expect, test } from 'vitest';
import { saysCpu } from './cpu_adapter.js';
import { Device } from './device.js';
import { testAdapters } from './testing/adapters.js';

const info = (given: Partial<GPUAdapterInfo>): Pick<GPUAdapter, 'info'> => ({
  info: { vendor: '', architecture: '', device: '', description: '', ...given } as GPUAdapterInfo,
});

test.each<[string, Pick<GPUAdapter, 'info'>, boolean]>([
  ['says so', info({ vendor: 'acme', isFallbackAdapter: true }), true],
  ['says that it is a GPU', info({ vendor: 'acme', isFallbackAdapter: false }), false],
  ['as older browsers have it', { ...info({}), isFallbackAdapter: true } as never, true],
  ['WARP without a word', info({ description: 'Microsoft Basic Render Driver' }), true],
  ['a name is believed first', info({ description: 'llvmpipe (LLVM 15)', isFallbackAdapter: false }), true],
  ['SwiftShader by its architecture', info({ vendor: 'google', architecture: 'swiftshader' }), true],
  ['nothing is known', info({ vendor: 'acme', architecture: 'wavefront' }), false],
])('a CPU: %s', (_what, adapter, expected) => {
  expect(saysCpu(adapter)).toBe(expected);
});

test('what says nothing is opened as a GPU; strict math is asked for where there is such a thing', async () => {
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
  expect(device.adapter.variants).toBe('hardware');
  device.pipelineOf({ name: 'nothing', bindings: [], code: '@compute @workgroup_size(1) fn main() {}' });
  expect(asked).toContain('shader-module-compilation-options');
  expect(modules.length).toBeGreaterThan(0);
  for (const descriptor of modules) expect(descriptor).toMatchObject({ strictMath: true });
  device.dispose();
});
