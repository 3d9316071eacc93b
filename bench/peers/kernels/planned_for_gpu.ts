import type { Device } from '../../../src/gpu/index.js';

/**
 * The same device, for which kernels are planned as for a GPU: on a software adapter ours have variants with few invocations and
 * barriers, which no peer has, so a comparison there is also told without them.
 */
export function plannedForGpu(device: Device): Device {
  const traits = { ...device.traits, software: false, unroll: true };
  return new Proxy(device, {
    get(target, name) {
      if (name === 'traits') return traits;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}
