import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { swiftshaderIcd } from '../node.js';
import { keepDevices } from './keep_devices.js';

// Both software drivers where they are installed, beside whatever the machine has: tests run on every adapter present.
const system = '/usr/share/vulkan/icd.d';
if (!process.env['VK_DRIVER_FILES']) {
  const drivers = existsSync(system) ? readdirSync(system).map((file) => join(system, file)) : [];
  const swiftshader = swiftshaderIcd();
  if (swiftshader) drivers.push(swiftshader);
  if (drivers.length > 0) process.env['VK_DRIVER_FILES'] = drivers.join(':');
}

// Two test files run side by side: a core for each model's device costs less than every core for both. Kernels keep all of them, for
// their workgroups meet only there.
// llvmpipe compiles a kernel for 4 invocations at a time in half the time it takes for 8 or 16; what each computes is the same.
process.env['LP_NATIVE_VECTOR_WIDTH'] ??= '128';

if (!expect.getState().testPath?.includes('/shaders/')) process.env['LP_NUM_THREADS'] ??= '0';
// A kernel runs some times only: LLVM's optimizer takes longer than it saves. It runs in sweeps, for models, and in browsers.
else if (process.env['SPLITKV_SWEEP'] !== 'all') process.env['GALLIVM_PERF'] ??= 'nopt';

// Of the projects that ask for it; this runs for each file of a process.
if (process.env['SPLITKV_KEEP_DEVICES']) {
  const { globals } = await import('webgpu');
  keepDevices((globals as { readonly GPUAdapter: typeof GPUAdapter }).GPUAdapter.prototype);
}
