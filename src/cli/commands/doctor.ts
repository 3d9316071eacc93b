import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { freemem, totalmem } from 'node:os';
import { dirname } from 'node:path';
import { type AdapterEntry, differentGpus } from '../../app/shared/adapter_list.js';
import { codeOf, messageOf, tried } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { snakeOf } from '../../base/names.js';
import { VERSION } from '../../base/version.js';
import { cacheOf, isOffline, listLocalModels, nodeAccess } from '../../loader/hub/node_hub_cache.js';
import { type Command, commonOptions, say } from '../command.js';
import { findChrome } from '../hosts/find_chrome.js';
import { plain, type Style } from '../terminal/style.js';
import { adapterText, nodeAdapters } from './adapters.js';

export const command: Command = {
  summary:
    'Looks whether this machine is ready: adapters with their drivers, features and limits, which would be taken and why, and what is ' +
    'missing, with the command that installs it. Opens no device and downloads nothing. Exits with 1 where no model could run in Node.',
  usage: 'doctor [--json]',
  options: commonOptions,
  async run(options, terminal) {
    const facts = await machineFacts();
    const found = findings(facts);
    const choice = choiceOf(facts.adapters);
    const { out: style } = terminal.style ?? { out: plain };
    const texts = [
      ...found.map((each) => line(each, style)),
      '',
      ...facts.adapters.map((each) => adapterText(each, style)),
    ];
    await say(options, terminal, documentOf(facts, found, choice), `${texts.join('\n')}\n`);
    return found.some(({ level }) => level === 'bad') ? 1 : 0;
  },
};

/** Names are stable: other tools read them. */
function documentOf(facts: MachineFacts, found: readonly Finding[], choice: ReturnType<typeof choiceOf>): object {
  const { hub, dawn, memory, chrome } = facts;
  return {
    ready: found.every(({ level }) => level !== 'bad'),
    ...snakeOf(facts, 'splitkv', 'node', 'platform', 'arch', 'adapters', 'gpuFiles', 'playwright'),
    memory_bytes: memory,
    chosen: choice ?? null,
    no_webgpu: dawn ?? null,
    chrome: chrome.path ?? null,
    hub: { ...snakeOf(hub, 'cache', 'models', 'signedIn', 'offline'), free_bytes: hub.freeBytes ?? null },
    findings: found,
  };
}

const MARKS = { ok: ['green', '✓'], warn: ['yellow', '!'], bad: ['red', '✗'] } as const;

function line({ level, topic, text, fix }: Finding, style: Style): string {
  const [colour, mark] = MARKS[level];
  const indent = ' '.repeat(TOPIC + 2);
  return `${style(colour, mark)} ${style('bold', topic.padEnd(TOPIC))}${text}${fix === undefined ? '' : `\n${indent}${style('cyan', fix)}`}`;
}

const TOPIC = 14;

export interface MachineFacts {
  readonly splitkv: string;
  readonly node: string;
  /** `process.platform` and `process.arch`. */
  readonly platform: string;
  readonly arch: string;
  /** Bytes of memory: all, and free now. */
  readonly memory: { readonly total: number; readonly free: number };
  /** Why the npm package `webgpu` gives nothing; undefined where it does. */
  readonly dawn: string | undefined;
  /** By Dawn, in its order. */
  readonly adapters: readonly AdapterEntry[];
  /** Linux: device files that say that there is a GPU, and those of them that this user may not open. */
  readonly gpuFiles: readonly string[];
  readonly closedFiles: readonly string[];
  /** The browser for `--host chrome`: its path, or why none is taken. */
  readonly chrome: { readonly path?: string; readonly problem?: string };
  readonly playwright: boolean;
  readonly hub: {
    readonly cache: string;
    readonly models: number;
    /** Bytes free on the disk of the cache; undefined where that isn't known. */
    readonly freeBytes: number | undefined;
    readonly signedIn: boolean;
    readonly offline: boolean;
  };
}

export interface Finding {
  /** 'bad': no model runs in Node; 'warn': something is missing or slow; 'ok'. */
  readonly level: 'ok' | 'warn' | 'bad';
  readonly topic: string;
  readonly text: string;
  /** A command, or what else to do. */
  readonly fix?: string;
}

/** The part of an adapter's name that `--adapter` needs. */
const shortName = (name: string): string => name.replace(/ ?\(.*$/s, '').trim();

/** What `load` and the commands would take where nothing is said, and why. */
export function choiceOf(
  adapters: readonly AdapterEntry[],
): { readonly name: string; readonly why: string } | undefined {
  const taken = adapters.find((adapter) => adapter.default === true);
  if (!taken) return undefined;
  const others = differentGpus(adapters).filter((adapter) => adapter !== taken);
  const other = others.find((adapter) => !adapter.software);
  const { name, software } = taken;
  if (software) {
    const why =
      others.length === 0
        ? 'the only adapter; there is no GPU that Vulkan, Metal or Direct3D shows'
        : `no GPU; the fastest of ${others.length + 1} adapters that run on the CPU`;
    return { name, why };
  }
  if (!other) return { name, why: 'the only GPU' };
  const why = `a discrete GPU goes before an integrated one; --adapter "${shortName(other.name)}" takes another`;
  return { name, why };
}

const finding =
  (level: Finding['level']) =>
  (topic: string, text: string, fix?: string): Finding => ({ level, topic, text, ...(fix !== undefined && { fix }) });
const ok = finding('ok');
const warn = finding('warn');
const bad = finding('bad');

/** In the order in which people care. */
export function findings(facts: MachineFacts): Finding[] {
  const { splitkv, node, platform, arch, memory } = facts;
  return [
    ok('splitkv', `${splitkv}, Node ${node}, ${platform} ${arch}`),
    ok('memory', `${formatBytes(memory.free)} of ${formatBytes(memory.total)} free`),
    ...adapterFindings(facts),
    ...ranksFinding(facts),
    chromeFinding(facts),
    ...hubFindings(facts),
  ];
}

function adapterFindings({ dawn, adapters, platform, gpuFiles, closedFiles }: MachineFacts): Finding[] {
  const topic = 'GPU';
  if (dawn !== undefined) {
    return [bad(topic, `Node has no WebGPU: ${dawn}`, 'npm install --ignore-scripts webgpu')];
  }
  const choice = choiceOf(adapters);
  if (!choice) {
    const fix =
      platform === 'linux'
        ? 'sudo apt install mesa-vulkan-drivers   (Fedora: sudo dnf install mesa-vulkan-drivers)'
        : "update the GPU's driver";
    return [bad(topic, 'Dawn finds no adapter, not even one that runs on the CPU', fix)];
  }
  const taken = `${choice.name} is taken: ${choice.why}`;
  if (adapters.some(({ software }) => !software)) return [ok(topic, taken)];
  const found = [warn(topic, taken)];
  if (closedFiles.length > 0) {
    const fix = 'sudo usermod -aG render,video "$USER"   (then log in again)';
    found.push(warn(topic, `this user may not open ${closedFiles.join(', ')}`, fix));
  } else if (gpuFiles.some((file) => file.includes('nvidia'))) {
    const text = "an NVIDIA GPU is there, but Vulkan doesn't show it: its driver's Vulkan part is missing";
    const fix = 'sudo apt install libnvidia-gl-DRIVER_VERSION   (in a container: NVIDIA_DRIVER_CAPABILITIES=all)';
    found.push(warn(topic, text, fix));
  } else if (gpuFiles.length > 0) {
    const text = `there may be a GPU (${gpuFiles.join(', ')}), but Vulkan doesn't show it`;
    found.push(warn(topic, text, 'sudo apt install mesa-vulkan-drivers   (then look at `vulkaninfo --summary`)'));
  }
  return found;
}

function ranksFinding({ adapters, dawn }: MachineFacts): Finding[] {
  if (dawn !== undefined || adapters.length === 0) return [];
  const gpus = differentGpus(adapters).filter(({ software }) => !software);
  const topic = 'several GPUs';
  if (gpus.length > 1) {
    const names = gpus.map(({ name }) => shortName(name)).join(',');
    const text = `${gpus.length} GPUs; what both together would do with a model:`;
    return [ok(topic, text, `splitkv plan MODEL --ranks "${names}"`)];
  }
  const how = 'a plan over several is tried on one device by --virtual-ranks, which is no faster';
  return [ok(topic, `${gpus.length === 1 ? 'one GPU' : 'no GPU'}: ${how}`)];
}

function chromeFinding({ chrome, playwright }: MachineFacts): Finding {
  const topic = 'Chrome';
  if (chrome.problem !== undefined) return warn(topic, chrome.problem, 'unset CHROME_PATH');
  if (!playwright) return warn(topic, '--host chrome needs playwright-core', 'npm install playwright-core');
  if (chrome.path === undefined) {
    const text = 'no Chrome or Chromium was found for --host chrome';
    return warn(topic, text, 'npx playwright install chromium');
  }
  return ok(topic, `${chrome.path}, for --host chrome`, 'splitkv adapters --host chrome');
}

/** Under this a model of the catalog may not fit. */
const LITTLE_DISK = 5e9;

function hubFindings({ hub }: MachineFacts): Finding[] {
  const { cache, models, freeBytes, signedIn, offline } = hub;
  const room = freeBytes === undefined ? '' : `, ${formatBytes(freeBytes)} free`;
  const isLittle = freeBytes !== undefined && freeBytes < LITTLE_DISK;
  const kept = (isLittle ? warn : ok)(
    'models',
    `${models === 0 ? 'none yet' : models} in ${cache}${room}`,
    models === 0 ? 'splitkv pull smollm2-360m-instruct' : 'splitkv models',
  );
  if (offline) return [kept, warn('Hub', 'HF_HUB_OFFLINE is set: nothing is downloaded', 'unset HF_HUB_OFFLINE')];
  if (signedIn) return [kept, ok('Hub', 'a token is there, for gated models')];
  return [kept, ok('Hub', 'no token; only gated and private models need one', 'hf auth login   (or HF_TOKEN)')];
}

/** Looks at this machine. Nothing is downloaded, and no device is opened. */
async function machineFacts(): Promise<MachineFacts> {
  let dawn: string | undefined;
  let adapters: readonly AdapterEntry[] = [];
  try {
    adapters = await nodeAdapters();
  } catch (error) {
    if (codeOf(error) !== 'no_webgpu') throw error;
    dawn = messageOf(error);
  }
  const gpuFiles = filesOfGpus();
  const access = await nodeAccess({});
  const cache = cacheOf(access.endpoint);
  return {
    splitkv: VERSION,
    node: process.versions.node,
    platform: process.platform,
    arch: process.arch,
    memory: { total: totalmem(), free: freemem() },
    dawn,
    adapters,
    gpuFiles,
    closedFiles: gpuFiles.filter((file) => !mayOpen(file)),
    chrome: chrome(),
    playwright: tried(() => createRequire(import.meta.url).resolve('playwright-core')) !== undefined,
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

/** What the kernel calls GPUs, on Linux: /dev/dri/renderD128, /dev/nvidia0, WSL's /dev/dxg. */
function filesOfGpus(): string[] {
  if (process.platform !== 'linux') return [];
  const rendering = (tried(() => readdirSync('/dev/dri')) ?? []).filter((name) => name.startsWith('renderD'));
  const others = ['/dev/nvidia0', '/dev/dxg'].filter((file) => existsSync(file));
  return [...rendering.map((name) => `/dev/dri/${name}`), ...others];
}

const mayOpen = (file: string): boolean =>
  tried(() => {
    accessSync(file, constants.R_OK | constants.W_OK);
    return true;
  }) ?? false;

/** Of the nearest folder above that is there. */
async function freeBytes(folder: string): Promise<number | undefined> {
  let at = folder;
  while (!existsSync(at) && dirname(at) !== at) at = dirname(at);
  const disk = await statfs(at).catch(() => undefined);
  return disk && disk.bavail * disk.bsize;
}
