import { afterEach, describe, expect, test, vi } from 'vitest';
import { openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { modelWork, modelSizes } from '../../model/model_sizes.js';
import { makePlan, predictPlan, predictPlans } from '../../placement/index.js';
import { measureAdapters } from './basics.js';
import { measureHead, measureMachine } from './measure_machine.js';
import { Probe, type ProbeSubject } from './probe.js';
import { chooseLayers } from './probe_layers.js';
import type { MeasureStore } from './stores/store.js';

const { name: adapterName } = (await testAdapters()).at(-1)!;
const subjectOf = (model_type: string, type: ProbeSubject['type'] = 'f32'): ProbeSubject => ({
  config: makeRandomModel({ config: { model_type } }).config,
  type,
  kvType: 'f32',
  contextLength: 600,
  batched: true,
});

function countingStore(): MeasureStore & { readonly names: string[] } {
  const kept = new Map<string, unknown>();
  const names: string[] = [];
  return {
    environment: 'test',
    names,
    get: (key) => Promise.resolve(kept.get(key)),
    set: (key, value) => {
      names.push(key.split('-')[0]!);
      return Promise.resolve(void kept.set(key, value));
    },
  };
}

const numbersOf = (value: unknown): number[] =>
  typeof value === 'number'
    ? [value]
    : typeof value === 'object' && value !== null
      ? Object.values(value).flatMap((inner) => numbersOf(inner))
      : [];

test("the head of a file's blocks, before any weights of such a type are loaded", async () => {
  const device = await openDevice({ adapterName });
  try {
    const { secondsPerByte } = await measureHead(device, subjectOf('llama', 'iq3_s'));
    expect(secondsPerByte).toBeGreaterThanOrEqual(0);
  } finally {
    device.dispose();
  }
});

describe('a machine', () => {
  test.each(['llama', 'deepseek_v3'])('%s: everything that the planner asks for', async (model_type) => {
    const subject = subjectOf(model_type);
    const store = countingStore();
    const request = { subject, adapters: [{ adapterName }, { adapterName }], virtual: false, store };
    const machine = await measureMachine(request);
    for (const number of numbersOf(machine)) expect(number).toBeGreaterThanOrEqual(0);
    expect(machine.ranks).toHaveLength(2);
    expect(machine.links[1]![0]!.latencySeconds).toBeGreaterThan(0);
    expect(machine.links[1]![0]).toEqual(machine.links[0]![1]);
    for (const list of Object.values(machine.slowdown)) {
      expect(list[0]).toBe(1);
      expect(list[1]).toBeLessThanOrEqual(2);
    }
    // One adapter, measured once for both ranks; the second time not at all.
    expect(store.names).toEqual(['adapter', 'group']);
    expect(await measureMachine(request)).toEqual(machine);
    expect(store.names).toHaveLength(2);

    const work = modelWork(subject.config, subject.type, subject.kvType);
    const workload = { contextLength: 600, promptLength: 300, promptChunk: 512 };
    for (const candidate of predictPlans(work, machine, workload)) {
      if (candidate.plan) expect(candidate.requestSeconds).toBeGreaterThan(0);
    }
    const more = (promptLength: number): number =>
      predictPlan(makePlan('single', 1, work.shape), work, machine, { ...workload, promptLength }).firstTokenSeconds;
    expect(more(400)).toBeGreaterThan(more(100));
  });

  test('ranks that share a device take turns', async () => {
    const adapters = [{ adapterName }, { adapterName }];
    const shared = { subject: subjectOf('llama'), adapters, virtual: true, store: countingStore() };
    const { slowdown } = await measureMachine(shared);
    expect(slowdown).toEqual({ generated: [1, 2], prompt: [1, 2] });
  });

  test('an aborted signal ends it', async () => {
    const signal = AbortSignal.abort();
    const request = { subject: subjectOf('llama'), adapters: [{ adapterName }], virtual: false, signal };
    await expect(measureMachine({ ...request, store: countingStore() })).rejects.toMatchObject({ code: 'aborted' });
  });
});

describe('layers of a model on a device', () => {
  afterEach(() => vi.restoreAllMocks());
  const open = async (subject: ProbeSubject) => {
    const device = await openDevice({ adapterName });
    const sizes = modelSizes(subject.config, subject.type, subject.kvType);
    const kind = subject.config.architecture === 'llama' ? 'dense' : 'expert';
    const layers = chooseLayers(subject.config, sizes, kind, 'whole', 1, Infinity);
    return { device, probe: await Probe.open(device, subject, layers) };
  };

  test.each([
    ['llama', 'q4'],
    ['llama', 'f16'],
    ['deepseek_v3', 'q8'],
  ] as const)('%s as %s: prompt rows and generated rows agree', async (model_type, type) => {
    const { device, probe } = await open(subjectOf(model_type, type));
    await probe.check();
    device.dispose();
  });

  test('an adapter that computes nonsense is refused', async () => {
    const { device, probe } = await open(subjectOf('llama'));
    const right = device.read.bind(device);
    vi.spyOn(device, 'read').mockImplementationOnce(async (...args) => {
      const row = new Float32Array(await right(...args));
      return row.map((value) => -value).buffer;
    });
    await expect(probe.check()).rejects.toMatchObject({
      code: 'internal',
      message: expect.stringContaining('so nothing is timed') as string,
    });
    device.dispose();
  });
});

test('adapters by themselves, and what two devices take to tell each other', async () => {
  const { adapters, exchanges } = await measureAdapters([{ adapterName }]);
  expect(adapters).toHaveLength(1);
  expect(adapters[0]!.copyBytesPerSecond).toBeGreaterThan(0);
  expect(adapters[0]!.matvecSeconds).toBeGreaterThan(0);
  expect(exchanges).toMatchObject([{ a: 0, b: 0 }]);
  expect(exchanges[0]!.latencySeconds).toBeGreaterThan(0);
});
