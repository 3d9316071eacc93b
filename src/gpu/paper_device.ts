import { Device } from './device.js';

/** As the specification has them; in Node they come with Dawn, which paper does without. */
const CONSTANTS = {
  GPUBufferUsage: { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 },
  GPUShaderStage: { COMPUTE: 4 },
};

/** What current GPUs offer. */
const LIMITS = {
  maxStorageBufferBindingSize: 2 ** 31 - 4,
  maxBufferSize: 2 ** 31,
  maxComputeWorkgroupStorageSize: 32768,
  maxComputeInvocationsPerWorkgroup: 1024,
  maxComputeWorkgroupSizeX: 1024,
  maxComputeWorkgroupsPerDimension: 65535,
  maxStorageBuffersPerShaderStage: 10,
  minUniformBufferOffsetAlignment: 256,
  minStorageBufferOffsetAlignment: 256,
};

/**
 * A device on paper: it counts what is allocated (`usage`) and compiles, keeps and runs nothing. What a rank will take is known
 * before there is a GPU.
 */
export function openPaperDevice(): Promise<Device> {
  for (const [name, value] of Object.entries(CONSTANTS)) {
    if (!(name in globalThis)) Object.assign(globalThis, { [name]: value });
  }
  const nothing = (): object => ({});
  const gpu = {
    limits: LIMITS,
    features: new Set(),
    lost: new Promise(() => {}),
    queue: { writeBuffer: () => {}, submit: () => {}, onSubmittedWorkDone: () => Promise.resolve() },
    createBuffer: () => ({ destroy: () => {} }),
    createBindGroup: nothing,
    createBindGroupLayout: nothing,
    createPipelineLayout: nothing,
    createShaderModule: nothing,
    createComputePipeline: nothing,
    pushErrorScope: () => {},
    popErrorScope: () => Promise.resolve(null),
    destroy: () => {},
  };
  const adapter = {
    limits: LIMITS,
    features: new Set(),
    info: { vendor: '', architecture: '', device: '', description: 'paper', isFallbackAdapter: false },
    requestDevice: () => Promise.resolve(gpu),
  };
  return Device.open(adapter as unknown as GPUAdapter);
}
