import { isNode } from '../base/platform.js';
import { messageOf, noWebGpuError, SplitkvError, usageError } from '../base/errors.js';
import { saysCpu, SOFTWARE } from './cpu_adapter.js';
import { Device, type DeviceTraits, type FastPath, type Variants } from './device.js';

export interface AdapterRequest {
  /**
   * A hint: browsers may ignore it, and two preferences may name the same GPU. Default 'high-performance': a discrete GPU before an
   * integrated one. Node takes a software adapter only where there is no GPU, and of several the fastest.
   */
  readonly powerPreference?: 'high-performance' | 'low-power';
  /** `SOFTWARE`, or part of an adapter's name. That is for Node only: browsers can't choose by name. */
  readonly adapterName?: string;
  /**
   * Node only: devices of different instances of Dawn work side by side even where one instance's devices share the threads of a
   * software adapter. Any whole number; default 0.
   */
  readonly instance?: number;
  /** Of kernels; default: those for what the adapter is. Forces a GPU's on the CPU, for tests. */
  readonly variants?: Variants;
  /** How prompts may be multiplied; of these, what the adapter has. Undefined: exactly. */
  readonly fast?: readonly FastPath[];
  /** Node only: with features that browsers keep behind a flag, such as matrix units. */
  readonly experimental?: boolean;
}

/** The error of a page without `navigator.gpu`. */
export function noWebGpu(): SplitkvError {
  const secure = globalThis.isSecureContext !== false;
  return noWebGpuError(
    secure
      ? 'this browser has no WebGPU (navigator.gpu is missing); use Chrome or Edge 121 or newer, or enable WebGPU in its settings'
      : 'this page must be served over https or from localhost: browsers offer WebGPU to such pages only (secure contexts)',
  );
}

/** `navigator.gpu` in a browser, Dawn (npm package `webgpu`) in Node. */
const gpuOf = async (request: AdapterRequest): Promise<GPU | undefined> =>
  isNode()
    ? (await import('./node.js')).nodeGpuOf(request)
    : (globalThis.navigator as Partial<Navigator> | undefined)?.gpu;

async function requestAdapter(request: AdapterRequest): Promise<GPUAdapter | null> {
  if (isNode()) return (await import('./node.js')).requestNodeAdapter(request);
  const { adapterName, powerPreference = 'high-performance' } = request;
  const gpu = await gpuOf(request);
  if (!gpu) throw noWebGpu();
  if (adapterName === SOFTWARE) return gpu.requestAdapter({ forceFallbackAdapter: true });
  if (adapterName !== undefined) {
    throw usageError(
      `adapter '${adapterName}': browsers can't choose an adapter by name; use '${SOFTWARE}', or a power preference`,
    );
  }
  return gpu.requestAdapter({ powerPreference });
}

async function fastTraitsHere(
  adapter: GPUAdapter,
  request: AdapterRequest,
): Promise<NonNullable<DeviceTraits['fast']>> {
  const { fastTraits } = await import('./fast_paths.js');
  return fastTraits(adapter, (await gpuOf(request))?.wgslLanguageFeatures);
}

/**
 * How an adapter can multiply prompts otherwise than exactly, the best way first. Where there is no adapter: none, and opening one says why.
 * @param gpuOnly none of an adapter that runs on the CPU
 */
export async function adapterFastPaths(request: AdapterRequest = {}, gpuOnly = false): Promise<readonly FastPath[]> {
  const adapter = await requestAdapter(request).catch(() => null);
  return !adapter || (gpuOnly && saysCpu(adapter)) ? [] : (await fastTraitsHere(adapter, request)).paths;
}

/** Which variants of kernels `openDevice` would plan. Where there is no adapter: 'software', and opening one says why. */
export async function adapterVariants(request: AdapterRequest = {}): Promise<Variants> {
  if (request.variants) return request.variants;
  const adapter = await requestAdapter(request).catch(() => null);
  return !adapter || saysCpu(adapter) ? 'software' : 'hardware';
}

/**
 * Opens one device on the adapter asked for.
 * @throws SplitkvError `no_webgpu` when there is none.
 */
export async function openDevice(request: AdapterRequest = {}): Promise<Device> {
  let adapter: GPUAdapter | null;
  let reason = 'the browser offers no adapter';
  try {
    adapter = await requestAdapter(request);
  } catch (error) {
    if (error instanceof SplitkvError) throw error;
    adapter = null;
    reason = messageOf(error);
  }
  if (!adapter) {
    throw noWebGpuError(
      `no WebGPU adapter: ${reason}. Update the GPU driver, enable hardware acceleration` +
        (isNode() ? ', or install a software Vulkan driver (Debian: mesa-vulkan-drivers)' : ', or see chrome://gpu'),
    );
  }
  const { fast, variants } = request;
  if (!fast) return Device.open(adapter, variants);
  const has = await fastTraitsHere(adapter, request);
  return Device.open(adapter, variants, { ...has, paths: has.paths.filter((path) => fast.includes(path)) });
}
