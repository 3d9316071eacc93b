import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type Device, openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { firstDifference } from '../testing/run_bits.js';
import { openStopwatch, type Stopwatch } from './stopwatch.js';
import type { MeasureStore } from '../measure/stores/store.js';
import { tune } from './tune.js';

beforeEach(() => vi.stubEnv('SPLITKV_CACHE_DIR', mkdtempSync(join(tmpdir(), 'splitkv-tune-'))));
afterEach(() => void vi.unstubAllEnvs());

const adapter = (await testAdapters()).at(-1)!.name;
const LLAMA: OpenRunnerOptions = { adapter, variants: 'hardware', model: { seed: 1 }, weights: 'q4', tune: false };
const MODELS: readonly (readonly [string, OpenRunnerOptions])[] = [
  ['llama, q4', LLAMA],
  ['llama, tp on two', { ...LLAMA, plan: 'tp', ranks: 2, virtual: true }],
  ['deepseek, f16', { ...LLAMA, model: { seed: 2, config: { model_type: 'deepseek_v3' } }, weights: 'f16' }],
];
/** More than any kernel has. */
const CANDIDATES = 99;

function memoryStore(environment = `${Math.random()}`): MeasureStore & { readonly kept: Map<string, unknown> } {
  const kept = new Map<string, unknown>();
  return {
    environment,
    kept,
    get: (key) => Promise.resolve(kept.get(key)),
    set: (key, value) => Promise.resolve(void kept.set(key, value)),
  };
}

/** Runs what it is given, and finds the `wanted`th of the candidates (or the last) quickest. */
const finding =
  (wanted: number, told: { passes: number } = { passes: 0 }) =>
  (device: Device, most: number): Stopwatch => {
    const real = openStopwatch(device, most);
    return {
      enough: 2,
      async seconds(passes) {
        told.passes += passes.length;
        await real.seconds(passes);
        return passes.map((_, index) => (index === Math.min(wanted, passes.length - 1) ? 1 : 2));
      },
      dispose: () => real.dispose(),
    };
  };

async function logits({ runner, group }: Awaited<ReturnType<typeof openRunner>>): Promise<Buffer[]> {
  const rows: Buffer[] = [];
  const bytes = (row: Float32Array): Buffer => Buffer.from(row.slice().buffer);
  const prompt = Array.from({ length: 70 }, (_, i) => (i * 37 + 11) % 320);
  try {
    await runner.logits(prompt, true, (_position, row) => rows.push(bytes(row)));
    await runner.prefill(prompt, 8, { seed: 0 });
    for (let step = 0; step < 3; step++) {
      await (step === 0 ? runner.sampleFirst() : runner.step());
      rows.push(bytes(await runner.slotLogits(0)));
    }
    return rows;
  } finally {
    group.dispose();
  }
}

test.each(drawn(MODELS, 1, 'tuned models'))(
  'whichever plans win, a model has the same bits: %s',
  { timeout: 300_000 },
  async (name, options) => {
    const { plan: _plan, ranks: _ranks, virtual: _virtual, ...alone } = options;
    const expected = await logits(await openRunner(alone));
    const wanted = [1, 2, 3, 4];
    for (const index of drawn(wanted, 1, `${name} tunings`)) {
      const opened = await openRunner(options);
      const [device] = opened.group.devices;
      const { chosen, ...counts } = await tune(device!, {
        store: memoryStore(),
        budgetMs: 1e9,
        openStopwatch: finding(index),
      });
      expect(counts).toMatchObject({ state: 'on', known: 0, left: 0, measured: counts.choices });
      expect(Object.values(chosen).reduce((sum, count) => sum + count, 0)).toBe(counts.choices);
      expect(firstDifference(expected, await logits(opened)), `candidate ${index}`).toBe(-1);
    }
  },
);

test('what was found is found again without measuring; what is corrupt is measured', { timeout: 300_000 }, async () => {
  const store = memoryStore();
  const told = { passes: 0 };
  const { group, device } = await openRunner(LLAMA);
  const first = await tune(device, { store, budgetMs: 1e9, openStopwatch: finding(1, told) });
  expect(first.measured).toBe(first.choices);
  expect(store.kept.size).toBe(first.choices);
  expect([...store.kept.keys()].every((key) => /^tuning-[0-9a-f]{24}$/.test(key))).toBe(true);
  group.dispose();

  // Another process: the same store, nothing in memory.
  vi.resetModules();
  const { tune: anew } = await import('./tune.js');
  const [spoiled, foreign, ...intact] = store.kept.keys();
  store.kept.set(spoiled!, 'nonsense').set(foreign!, CANDIDATES);
  const again = await openRunner(LLAMA);
  const before = told.passes;
  const second = await anew(again.device, { store, budgetMs: 1e9, openStopwatch: finding(1, told) });
  expect(second).toMatchObject({ measured: 2, known: intact.length, left: 0, chosen: first.chosen });
  expect(told.passes).toBeGreaterThan(before);
  // Another rank on the same device, or recorded later.
  const third = await anew(again.device, {
    store,
    openStopwatch: () => {
      throw new Error('measured again');
    },
  });
  expect(third).toMatchObject({ measured: 0, known: first.choices, left: 0 });
  again.group.dispose();
});

test('nothing is begun after the time is up; a token of one sequence comes first', { timeout: 300_000 }, async () => {
  const { group, device } = await openRunner({ ...LLAMA, slots: 3 });
  const store = memoryStore();
  let clock = 0;
  const passing = (most: number) => ({
    store,
    budgetMs: most,
    now: () => clock,
    openStopwatch: (on: Device, count: number) => {
      const watch = finding(0)(on, count);
      return {
        ...watch,
        seconds: (passes: Parameters<Stopwatch['seconds']>[0]) => ((clock += 100), watch.seconds(passes)),
      };
    },
  });
  // Two runs of each to begin with, then three rounds.
  const { known, measured, left, choices, ms } = await tune(device, passing(1000));
  expect({ known, measured, left, ms }).toEqual({ known: 0, measured: 2, left: choices - 2, ms: 1000 });
  const rows = (made: boolean) =>
    device.choices.all
      .filter((choice) => choice.made === made)
      .map(({ problem }) => (problem as { rows: number }).rows);
  expect(Math.max(...rows(true))).toBeLessThanOrEqual(Math.min(...rows(false)));
  // One that isn't finished in time counts as not reached, and isn't kept.
  expect(await tune(device, passing(250))).toMatchObject({ known: 2, left: choices - 2 });
  expect(store.kept.size).toBe(2);
  expect((await tune(device, passing(1e9))).left).toBe(0);
  group.dispose();
});

test("a plan that the driver makes wrong doesn't win", { timeout: 300_000 }, async () => {
  const expected = await logits(await openRunner(LLAMA));
  const opened = await openRunner(LLAMA);
  const { gpu } = opened.device;
  const create = gpu.createShaderModule.bind(gpu);
  // What kernels have by themselves is compiled by now.
  gpu.createShaderModule = ({ code, ...rest }) => {
    const broken = code.replace(/(@compute[\s\S]*?fn main\([\s\S]*?\)\s*\{)/, '$1 if (true) { return; }');
    expect(broken).not.toBe(code);
    return create({ ...rest, code: broken });
  };
  const { measured, choices, chosen } = await tune(opened.device, {
    store: memoryStore(),
    budgetMs: 1e9,
    openStopwatch: finding(1),
  });
  expect({ measured, chosen }).toEqual({ measured: choices, chosen: {} });
  expect(firstDifference(expected, await logits(opened))).toBe(-1);
});

test.each([
  ['a GPU', { software: false, tune: true }, 'on'],
  ['a GPU, if it is wanted', { software: false, tune: false }, 'off'],
  ['not the CPU', { software: true, tune: true }, 'software'],
] as const)('load tunes %s', { timeout: 300_000 }, async (_what, { software, tune: wanted }, state) => {
  const told = { passes: 0 };
  const opened = await openRunner({
    ...LLAMA,
    tune: wanted,
    stopwatch: { openStopwatch: finding(1, told), now: () => 0 },
    open: async (asked) => {
      const device = await openDevice(asked);
      // For all that it knows this is a GPU, or not.
      Object.defineProperty(device, 'adapter', { value: { ...device.adapter, software } });
      return device;
    },
  });
  const { tuning } = opened.group.ranks[0]!.facts;
  expect(tuning).toMatchObject({ state, left: 0 });
  expect(tuning!.measured).toBe(tuning!.choices);
  expect(tuning!.choices > 4).toBe(state === 'on');
  expect(told.passes > 0).toBe(state === 'on');
  opened.group.dispose();
});

test('a stopwatch tells seconds, by the GPU or the host', async () => {
  const device = await openDevice({ adapterName: adapter });
  const buffer = device.createBuffer('some', 4 * 2 ** 18);
  const source = {
    name: 'busy',
    bindings: ['read_write'],
    code: `@group(0) @binding(0) var<storage, read_write> some: array<f32>;
      @group(0) @binding(1) var<uniform> params: vec4<u32>;
      @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        var sum = some[id.x];
        for (var i = 0u; i < 100u + params.x; i++) { sum = sum * 0.5 + 1.0; }
        some[id.x] = sum;
      }`,
  } as const;
  const { pipeline, layout } = device.pipelineOf(source);
  const params = device.createBuffer('params', 16, 'uniform');
  const entries = [buffer, params].map(({ gpu }, binding) => ({ binding, resource: { buffer: gpu } }));
  const bindGroup = device.gpu.createBindGroup({ layout, entries });
  const busy = (pass: GPUComputePassEncoder): void => {
    pass.setPipeline(pipeline!);
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(2 ** 12);
  };
  const { features } = device.gpu;
  for (const has of [features.has('timestamp-query'), false]) {
    Object.defineProperty(device.gpu, 'features', { value: new Set(has ? [...features] : []), configurable: true });
    const stopwatch = openStopwatch(device, 3);
    const seconds = await stopwatch.seconds([busy, busy, busy]);
    expect(seconds).toHaveLength(3);
    for (const each of seconds) expect(each).toBeGreaterThan(0);
    stopwatch.dispose();
  }
  device.dispose();
});
