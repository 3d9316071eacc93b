import { SplitkvError } from '../base/errors.js';
import { NodePacer } from './node_pacing.js';
import { swiftshaderIcd } from './node_swiftshader.js';
import { usePacer } from './pacing.js';

const entries = new Map<string, GPU>();
const pacer = new NodePacer();

/**
 * Dawn's WebGPU in this Node process; `adapterName` is part of an adapter's name, e.g. 'SwiftShader' or 'llvmpipe'. The devices of an
 * instance share a software adapter's threads.
 */
export async function nodeGpu(adapterName: string | undefined, instance = 0): Promise<GPU> {
  const key = `${instance} ${adapterName ?? ''}`;
  let gpu = entries.get(key);
  if (!gpu) {
    // A second adapter beside whatever the Vulkan loader finds; it reads this once, when Dawn first looks for adapters.
    const swiftshader = process.env['VK_DRIVER_FILES'] ? undefined : swiftshaderIcd();
    if (swiftshader) process.env['VK_ADD_DRIVER_FILES'] ??= swiftshader;
    let dawn: typeof import('webgpu');
    try {
      dawn = await import('webgpu');
    } catch (error) {
      throw new SplitkvError(
        'no_webgpu',
        `Node needs the npm package 'webgpu' (Dawn): npm install webgpu. ${String(error)}`,
        {
          cause: error,
        },
      );
    }
    Object.assign(globalThis, dawn.globals);
    usePacer(pacer);
    gpu = dawn.create(adapterName === undefined ? [] : [`adapter=${adapterName}`]);
    entries.set(key, gpu);
  }
  return gpu;
}
