import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { freemem, totalmem } from 'node:os';
import { dirname } from 'node:path';
import type { AdapterEntry } from '../../app/shared/adapter_list.js';
import { SplitkvError } from '../../base/errors.js';
import { cacheOf, isOffline, listLocalModels, nodeAccess } from '../../loader/hub/node_hub_cache.js';
import { findChrome } from '../hosts/find_chrome.js';
import { version } from '../version.js';
import type { MachineFacts } from './findings.js';

/** Looks at this machine. Nothing is downloaded, and no device is opened. */
export async function machineFacts(listAdapters: () => Promise<readonly AdapterEntry[]>): Promise<MachineFacts> {
  let dawn: string | undefined;
  let adapters: readonly AdapterEntry[] = [];
  try {
    adapters = await listAdapters();
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'no_webgpu')) throw error;
    dawn = error.message;
  }
  const gpuFiles = filesOfGpus();
  const access = await nodeAccess({});
  const cache = cacheOf(access.endpoint);
  return {
    splitkv: await version(),
    node: process.versions.node,
    platform: process.platform,
    arch: process.arch,
    memory: { total: totalmem(), free: freemem() },
    dawn,
    adapters,
    gpuFiles,
    closedFiles: gpuFiles.filter((file) => !mayOpen(file)),
    chrome: chrome(),
    playwright: isInstalled('playwright-core'),
    hub: {
      cache,
      models: (await listLocalModels(cache)).length,
      freeBytes: await freeBytes(cache),
      signedIn: access.token !== undefined,
      offline: isOffline(),
    },
  };
}

function chrome(): MachineFacts['chrome'] {
  try {
    const path = findChrome();
    return path === undefined ? {} : { path };
  } catch (error) {
    return { problem: (error as Error).message };
  }
}

function isInstalled(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name);
    return true;
  } catch {
    return false;
  }
}

/** What the kernel calls GPUs, on Linux: /dev/dri/renderD128, /dev/nvidia0, WSL's /dev/dxg. */
function filesOfGpus(): string[] {
  if (process.platform !== 'linux') return [];
  const rendering = existsSync('/dev/dri')
    ? readdirSync('/dev/dri')
        .filter((name) => name.startsWith('renderD'))
        .map((name) => `/dev/dri/${name}`)
    : [];
  return [...rendering, ...['/dev/nvidia0', '/dev/dxg'].filter((file) => existsSync(file))];
}

function mayOpen(file: string): boolean {
  try {
    accessSync(file, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Of the nearest folder above that is there. */
async function freeBytes(folder: string): Promise<number | undefined> {
  let at = folder;
  while (!existsSync(at) && dirname(at) !== at) at = dirname(at);
  try {
    const { bavail, bsize } = await statfs(at);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}
