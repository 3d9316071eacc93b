import { expect, test } from 'vitest';
import type { AdapterEntry } from '../../app/shared/adapter_list.js';
import { runHere } from '../testing/run_here.js';
import { choiceOf, findings, type MachineFacts } from './doctor.js';

const adapter = (name: string, software: boolean, isDefault = false): AdapterEntry => ({
  name,
  request: name,
  vendor: '',
  architecture: '',
  device: name,
  description: '',
  software,
  features: [],
  limits: {},
  ...(isDefault && { default: true }),
});

const machine = (changes: Partial<MachineFacts>): MachineFacts => ({
  splitkv: '1.0.0',
  node: '22.0.0',
  platform: 'linux',
  arch: 'x64',
  memory: { total: 2 ** 34, free: 2 ** 33 },
  dawn: undefined,
  adapters: [adapter('GPU A (NVK)', false, true)],
  gpuFiles: ['/dev/dri/renderD128'],
  closedFiles: [],
  chrome: { path: '/usr/bin/chromium' },
  playwright: true,
  hub: { cache: '/cache', models: 2, freeBytes: 1e11, signedIn: true, offline: false },
  ...changes,
});

const problems = (changes: Partial<MachineFacts>): string[] =>
  findings(machine(changes))
    .filter(({ level }) => level !== 'ok')
    .map(({ level, text, fix }) => `${level}: ${text} -> ${fix ?? ''}`);
const cpu = [adapter('llvmpipe', true, true), adapter('SwiftShader', true)];

test('a machine with everything has no problem', () => {
  expect(problems({})).toEqual([]);
});

test.each<[string, Partial<MachineFacts>, RegExp]>([
  [
    'no Dawn',
    { dawn: 'no package', adapters: [] },
    /^bad: Node has no WebGPU: no package -> npm install --ignore-scripts webgpu$/,
  ],
  ['no adapter', { adapters: [] }, /^bad: Dawn finds no adapter.* -> sudo apt install mesa-vulkan-drivers/],
  ['no adapter on Windows', { adapters: [], platform: 'win32' }, /-> update the GPU's driver$/],
  ['the CPU alone', { adapters: cpu, gpuFiles: [] }, /^warn: llvmpipe is taken: no GPU; the fastest of 2 adapters/],
  [
    'a GPU file that is closed',
    { adapters: cpu, closedFiles: ['/dev/dri/renderD128'] },
    /may not open \/dev\/dri\/renderD128 -> sudo usermod -aG render/,
  ],
  [
    'an NVIDIA GPU without Vulkan',
    { adapters: cpu, gpuFiles: ['/dev/nvidia0'] },
    /NVIDIA GPU is there.*-> sudo apt install libnvidia-gl/,
  ],
  ['another GPU without Vulkan', { adapters: cpu }, /there may be a GPU \(\/dev\/dri\/renderD128\)/],
  ['no browser', { chrome: {} }, /^warn: no Chrome.*-> npx playwright install chromium$/],
  ['no Playwright', { playwright: false }, /-> npm install playwright-core$/],
  ['a wrong CHROME_PATH', { chrome: { problem: 'CHROME_PATH=/x: no such file' } }, /-> unset CHROME_PATH$/],
  ['a full disk', { hub: { ...machine({}).hub, freeBytes: 1e9 } }, /^warn: 2 in \/cache, .* free/],
  ['offline', { hub: { ...machine({}).hub, offline: true } }, /-> unset HF_HUB_OFFLINE$/],
])('%s is told, with what helps', (_what, changes, expected) => {
  expect(problems(changes).join('\n')).toMatch(new RegExp(expected.source, 'm'));
});

test('two GPUs are offered as ranks; the same GPU again is none', () => {
  const two = [adapter('GPU A (NVK)', false, true), adapter('GPU B (RADV)', false)];
  const ranks = (adapters: readonly AdapterEntry[]): string | undefined =>
    findings(machine({ adapters })).find(({ topic }) => topic === 'several GPUs')?.fix;
  expect(ranks(two)).toBe('splitkv plan MODEL --ranks "GPU A,GPU B"');
  expect(ranks([two[0]!, { ...two[1]!, same_as: 'GPU A (NVK)' }])).toBeUndefined();
  expect(choiceOf(two)).toEqual({ name: 'GPU A (NVK)', why: expect.stringContaining('--adapter "GPU B"') });
  expect(choiceOf([two[0]!, cpu[1]!])).toEqual({ name: 'GPU A (NVK)', why: 'the only GPU' });
  expect(choiceOf([])).toBeUndefined();
});

test('of this machine, as a document: the adapter that load takes is told', async () => {
  const { code, stdout } = await runHere(['doctor', '--json']);
  const {
    ready,
    adapters,
    chosen,
    findings: found,
  } = JSON.parse(stdout) as {
    readonly ready: boolean;
    readonly adapters: readonly AdapterEntry[];
    readonly chosen: { readonly name: string; readonly why: string };
    readonly findings: readonly { readonly topic: string }[];
  };
  expect({ code, ready }).toEqual({ code: 0, ready: true });
  expect(adapters.find((entry) => entry.default)?.name).toBe(chosen.name);
  expect(found.map(({ topic }) => topic)).toEqual(expect.arrayContaining(['splitkv', 'GPU', 'models']));
});
