import { Device, type Variants } from './device.js';

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
 * @param like a device whose limits, features, name and variants of kernels it has
 * @param variants of kernels, where it is like no device; default: those for GPUs
 */
export function openPaperDevice(like?: Pick<Device, 'traits' | 'adapter'>, variants?: Variants): Promise<Device> {
  for (const [name, value] of Object.entries(CONSTANTS)) {
    if (!(name in globalThis)) Object.assign(globalThis, { [name]: value });
  }
  const nothing = (): object => ({});
  const limits = { ...LIMITS, ...like?.traits.limits };
  const features = new Set(like?.traits.f16 ? ['shader-f16'] : []);
  const gpu = {
    limits,
    features,
    lost: new Promise(() => {}),
    queue: { writeBuffer: () => {}, submit: () => {}, onSubmittedWorkDone: () => Promise.resolve() },
    createBuffer: () => ({ destroy: () => {} }),
    createBindGroup: nothing,
    createBindGroupLayout: nothing,
    createPipelineLayout: nothing,
    createShaderModule: nothing,
    createComputePipeline: nothing,
    createComputePipelineAsync: () => Promise.resolve({}),
    pushErrorScope: () => {},
    popErrorScope: () => Promise.resolve(null),
    destroy: () => {},
  };
  const adapter = {
    limits,
    features,
    info: {
      ...(like?.adapter ?? { vendor: '', architecture: '', device: '', description: 'paper' }),
      isFallbackAdapter: like?.adapter.software ?? false,
    },
    requestDevice: () => Promise.resolve(gpu),
  };
  const { fast, flushesHalves = false } = like?.traits ?? {};
  const own = like?.adapter.variants ?? variants;
  return Device.open(adapter as unknown as GPUAdapter, own, fast, () => Promise.resolve(flushesHalves));
}
