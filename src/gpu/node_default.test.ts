import { expect, test } from 'vitest';
import { openDevice } from './adapters.js';
import { nodeAdapterNames, nodeGpu, rankOf } from './node.js';

test('a GPU before software adapters, SwiftShader last', () => {
  const names: [string, boolean][] = [
    ['SwiftShader Device (Subzero)', true],
    ['Microsoft Basic Render Driver', true],
    ['llvmpipe (LLVM 15.0.6, 256 bits)', true],
    ['NVIDIA H100', false],
  ];
  const sorted = names.sort((a, b) => rankOf(...a) - rankOf(...b)).map(([name]) => name.split(' ')[0]);
  expect(sorted).toEqual(['NVIDIA', 'llvmpipe', 'Microsoft', 'SwiftShader']);
});

test('what is opened without a name is the first of them on this machine, whatever power is preferred', async () => {
  const ranks = new Map<string, number>();
  for (const name of await nodeAdapterNames()) {
    const adapter = await (await nodeGpu(name)).requestAdapter();
    if (adapter)
      ranks.set(adapter.info.description || adapter.info.device, rankOf(name, adapter.info.isFallbackAdapter));
  }
  const best = Math.min(...ranks.values());
  for (const request of [{}, { powerPreference: 'low-power' }, { instance: 1 }] as const) {
    const device = await openDevice(request);
    expect(device.traits.software).toBe(best > 0);
    expect([...ranks].filter(([, rank]) => rank === best).map(([name]) => name)).toContain(device.name);
    device.dispose();
  }
  const software = await openDevice({ adapterName: 'software' });
  expect(software.traits.software).toBe(true);
  const fastest = Math.min(...[...ranks.values()].filter((rank) => rank > 0));
  expect(ranks.get(software.name)).toBe(fastest);
  software.dispose();
});

test("an adapter is found by Dawn's name, and as `Device.name` spells it", async () => {
  const [name] = await nodeAdapterNames();
  const spelled = name!.toLowerCase().replace(/[^a-z0-9]+/g, '-');
  const devices = await Promise.all([name!, spelled].map((adapterName) => openDevice({ adapterName })));
  expect(devices[1]!.name).toBe(devices[0]!.name);
  for (const device of devices) device.dispose();
  await expect(openDevice({ adapterName: 'no-such-adapter' })).rejects.toThrow('no WebGPU adapter');
});
