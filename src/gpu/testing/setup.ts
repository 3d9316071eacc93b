import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

// Both software drivers where they are installed, beside whatever the machine has: tests run on every adapter present.
const chromium = '/usr/lib/chromium/vk_swiftshader_icd.json';
const system = '/usr/share/vulkan/icd.d';
if (!process.env['VK_DRIVER_FILES']) {
  const drivers = existsSync(system) ? readdirSync(system).map((file) => join(system, file)) : [];
  if (existsSync(chromium)) drivers.push(chromium);
  if (drivers.length > 0) process.env['VK_DRIVER_FILES'] = drivers.join(':');
}
