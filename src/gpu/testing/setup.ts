import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { swiftshaderIcd } from '../node_swiftshader.js';

// Both software drivers where they are installed, beside whatever the machine has: tests run on every adapter present.
const system = '/usr/share/vulkan/icd.d';
if (!process.env['VK_DRIVER_FILES']) {
  const drivers = existsSync(system) ? readdirSync(system).map((file) => join(system, file)) : [];
  const swiftshader = swiftshaderIcd();
  if (swiftshader) drivers.push(swiftshader);
  if (drivers.length > 0) process.env['VK_DRIVER_FILES'] = drivers.join(':');
}
