import { existsSync } from 'node:fs';
import { SplitkvError } from '../base/errors.js';

// Chromium's software Vulkan driver, as a second adapter beside whatever the system's Vulkan loader finds.
const SWIFTSHADER_ICDS = [
  '/usr/lib/chromium/vk_swiftshader_icd.json',
  '/opt/google/chrome/vk_swiftshader_icd.json',
  '/usr/lib/chromium-browser/vk_swiftshader_icd.json',
];

const entries = new Map<string, GPU>();

/** Dawn's WebGPU in this Node process; `adapterName` is part of an adapter's name, e.g. 'SwiftShader' or 'llvmpipe'. */
export async function nodeGpu(adapterName: string | undefined): Promise<GPU> {
  const key = adapterName ?? '';
  let gpu = entries.get(key);
  if (!gpu) {
    // The Vulkan loader reads this once, when Dawn first looks for adapters.
    const swiftshader = SWIFTSHADER_ICDS.find((path) => existsSync(path));
    if (swiftshader && !process.env['VK_DRIVER_FILES']) process.env['VK_ADD_DRIVER_FILES'] ??= swiftshader;
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
    gpu = dawn.create(adapterName === undefined ? [] : [`adapter=${adapterName}`]);
    entries.set(key, gpu);
  }
  return gpu;
}
