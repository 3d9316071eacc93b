import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { noWebGpuError, SplitkvError } from '../base/errors.js';
import type { AdapterRequest } from './adapters.js';
import { type Pacer, pacing, saysCpu, SOFTWARE } from './cpu_adapter.js';

const entries = new Map<string, GPU>();

/** Turns without a sleep, so that a short wait ends as soon as its work does. */
const FREE_TURNS = 4;
/** Of what a wait has lasted, it sleeps so much in a turn. */
const SLEEP_SHARE = 0.1;
const [LEAST_SLEEP_MS, MOST_SLEEP_MS] = [0.1, 0.5];
const ICD = 'vk_swiftshader_icd.json';
const INSTALLED = ['/usr/lib/chromium', '/opt/google/chrome', '/usr/lib/chromium-browser'];

/**
 * Dawn's WebGPU in this Node process; `adapterName` is part of an adapter's name, e.g. 'SwiftShader' or 'llvmpipe'. The devices of an
 * instance share a software adapter's threads.
 * @param experimental with features that browsers keep behind a flag
 */
export async function nodeGpu(adapterName: string | undefined, instance = 0, experimental = false): Promise<GPU> {
  const key = `${instance} ${experimental} ${adapterName ?? ''}`;
  let gpu = entries.get(key);
  if (!gpu) {
    // A second adapter beside whatever the Vulkan loader finds; it reads this once, when Dawn first looks for adapters.
    const swiftshader = process.env['VK_DRIVER_FILES'] ? undefined : swiftshaderIcd();
    if (swiftshader) process.env['VK_ADD_DRIVER_FILES'] ??= swiftshader;
    let dawn: typeof import('webgpu');
    try {
      dawn = await import('webgpu');
    } catch (error) {
      throw noWebGpuError(
        `Node needs the npm package 'webgpu' (Dawn): npm install --ignore-scripts webgpu. ${String(error)}`,
        error,
      );
    }
    Object.assign(globalThis, dawn.globals);
    pacing.pacer ??= new NodePacer();
    gpu = dawn.create([
      ...(adapterName === undefined ? [] : [`adapter=${adapterName}`]),
      ...(experimental ? ['enable-dawn-features=allow_unsafe_apis'] : []),
    ]);
    entries.set(key, gpu);
  }
  return gpu;
}

/** Software adapters by how fast they are: llvmpipe compiles shaders for whole vectors of this CPU, SwiftShader for four lanes. */
const SLOWEST_LAST = [/llvmpipe|lavapipe/i, /^(?!.*swiftshader)/i, /swiftshader/i];
let ranked: ReturnType<typeof rankedAdapters> | undefined;

export const nodeGpuOf = ({ adapterName, instance, experimental }: AdapterRequest): Promise<GPU> =>
  nodeGpu(adapterName, instance, experimental);

/**
 * The adapter asked for by name, otherwise the fastest: a GPU (a discrete one, unless low power is preferred) before a software adapter,
 * and of those the fastest.
 */
export async function requestNodeAdapter(request: AdapterRequest): Promise<GPUAdapter | null> {
  const { powerPreference = 'high-performance', adapterName } = request;
  const isSoftware = adapterName === SOFTWARE;
  const adapter = isSoftware ? null : await askedFor(request, powerPreference);
  if (!isSoftware && (adapterName !== undefined || !adapter || !saysCpu(adapter))) return adapter;
  const [name] = (await (ranked ??= rankedAdapters())).find(([, rank]) => !isSoftware || rank > 0) ?? [];
  if (name === undefined) return adapter;
  return (await nodeGpuOf({ ...request, adapterName: name })).requestAdapter({ powerPreference });
}

/** Dawn's adapter; by its own name or as `Device.name` spells it: 'NVIDIA H200' is 'nvidia-h200' there. */
async function askedFor(request: AdapterRequest, powerPreference: GPUPowerPreference): Promise<GPUAdapter | null> {
  try {
    return await (await nodeGpuOf(request)).requestAdapter({ powerPreference });
  } catch (error) {
    const asked = spelled(request.adapterName ?? '');
    const name = (await nodeAdapterNames()).find((each) => spelled(each).includes(asked));
    if (name === undefined || asked === '' || error instanceof SplitkvError) throw error;
    return (await nodeGpuOf({ ...request, adapterName: name })).requestAdapter({ powerPreference });
  }
}

const spelled = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]+/g, '-');

/** The fastest first. */
async function rankedAdapters(): Promise<readonly (readonly [name: string, rank: number])[]> {
  const found: (readonly [name: string, rank: number])[] = [];
  for (const name of await nodeAdapterNames()) {
    const adapter = await (await nodeGpu(name)).requestAdapter();
    if (adapter) found.push([name, rankOf(name, saysCpu(adapter))]);
  }
  return found.sort(([, a], [, b]) => a - b);
}

/** Of adapters the one with the least is taken. */
export const rankOf = (name: string, software: boolean): number =>
  software ? 1 + SLOWEST_LAST.findIndex((pattern) => pattern.test(name)) : 0;

/**
 * What Dawn calls the adapters of this machine. It only lists them in the error that an impossible name gives.
 * @throws SplitkvError `no_webgpu` where the package is missing
 */
export async function nodeAdapterNames(): Promise<readonly string[]> {
  let listing = '';
  try {
    await (await nodeGpu('no adapter has this name')).requestAdapter();
  } catch (error) {
    if (error instanceof SplitkvError) throw error;
    listing = String(error);
  }
  const found = [...listing.matchAll(/backend: '([^']*)', name: '([^']*)'/g)];
  return found.filter(([, backend]) => backend !== 'null').map(([, , name]) => name!);
}

/**
 * Dawn polls once each event-loop turn while GPU work is pending, and so burns a core that a software adapter needs. While a
 * wait is pending this sleeps a little in each turn.
 */
export class NodePacer implements Pacer {
  readonly #cell = new Int32Array(new SharedArrayBuffer(4));
  #waits = 0;
  #turns = 0;
  #began = 0;
  #scheduled = false;

  begin(): void {
    this.#waits++;
    this.#turns = 0;
    this.#began = performance.now();
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(this.#turn);
  }

  end(): void {
    this.#waits--;
  }

  readonly #turn = (): void => {
    if (this.#waits === 0) {
      this.#scheduled = false;
      return;
    }
    if (++this.#turns > FREE_TURNS) {
      const sleep = (performance.now() - this.#began) * SLEEP_SHARE;
      Atomics.wait(this.#cell, 0, 0, Math.min(Math.max(sleep, LEAST_SLEEP_MS), MOST_SLEEP_MS));
    }
    setImmediate(this.#turn);
  };
}

/**
 * Chromium's software Vulkan driver: beside the browser that CHROME_PATH names, where systems install one, or in Playwright's
 * cache. Linux only: elsewhere Dawn doesn't use Vulkan.
 * @param installed folders of browsers that the system installed
 * @returns the path of its ICD file
 */
export function swiftshaderIcd(installed: readonly string[] = INSTALLED): string | undefined {
  if (process.platform !== 'linux') return undefined;
  const chosen = process.env['CHROME_PATH'];
  const beside = chosen && existsSync(chosen) ? [dirname(realpathSync(chosen))] : [];
  return [...beside, ...installed, ...playwrightFolders()]
    .map((folder) => join(folder, ICD))
    .find((path) => existsSync(path));
}

/** Folders of the browsers that Playwright downloaded, newest revision first. */
function playwrightFolders(): string[] {
  const chosen = process.env['PLAYWRIGHT_BROWSERS_PATH'];
  const cache =
    chosen && chosen !== '0'
      ? chosen
      : join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'ms-playwright');
  if (!existsSync(cache)) return [];
  const revision = (name: string): number => Number(/\d+$/.exec(name)?.[0] ?? 0);
  return readdirSync(cache, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name.startsWith('chromium'))
    .map(({ name }) => name)
    .sort((a, b) => revision(b) - revision(a))
    .flatMap((name) => readdirSync(join(cache, name), { withFileTypes: true }))
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name));
}
