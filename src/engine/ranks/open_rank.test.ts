import { expect, test } from 'vitest';
import { type Device, openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { firstDifference } from '../testing/run_bits.js';
import { openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { Engine } from '../serving/engine.js';
import type { EngineRequest } from '../serving/loop/requests.js';
import { placing } from '../serving/loop/rank_balance.js';
import type { RankProgress } from './open_rank.js';

const adapter = (await testAdapters()).at(-1)!.name;
const models: [string, OpenRunnerOptions['model']][] = [
  ['llama', { seed: 1 }],
  ['deepseek', { seed: 2, config: { model_type: 'deepseek_v3' } }],
];

/** Counts pipelines that are waited for, and those made beside the loading. */
async function watched(options: Omit<OpenRunnerOptions, 'adapter'>, change: (device: Device) => void = () => {}) {
  const made = { waited: 0, beside: 0 };
  const progress: RankProgress[] = [];
  const opened = await openRunner({
    ...options,
    adapter,
    onProgress: (each) => progress.push(each),
    open: async (request) => {
      const device = await openDevice(request);
      const { gpu } = device;
      const create = gpu.createComputePipeline.bind(gpu);
      const createAsync = gpu.createComputePipelineAsync.bind(gpu);
      gpu.createComputePipeline = (descriptor) => {
        made.waited++;
        return create(descriptor);
      };
      gpu.createComputePipelineAsync = (descriptor) => {
        made.beside++;
        return createAsync(descriptor);
      };
      change(device);
      return device;
    },
  });
  return { ...opened, made, progress };
}

async function firstLogits({ runner, group }: Awaited<ReturnType<typeof watched>>): Promise<Buffer[]> {
  const rows: Buffer[] = [];
  await runner.logits([1, 2, 3, 4, 5], true, (_position, row) => rows.push(Buffer.from(row.slice().buffer)));
  group.dispose();
  return rows;
}

test.each(models)('kernels are compiled while the weights arrive: %s', async (_name, model) => {
  for (const more of [{ variants: 'hardware' }, { plan: 'tp', ranks: 2 }, { slots: 3, weights: 'q4' }] as const) {
    const opened = await watched({ model, ...more });
    expect(opened.made.waited, JSON.stringify(more)).toBe(0);
    expect(opened.made.beside).toBeGreaterThan(8);
    const { kernelsCompiled, kernelsTotal } = opened.progress.at(-1)!;
    expect(kernelsCompiled).toBe(kernelsTotal);
    opened.group.dispose();
  }
});

test('nothing waits for a kernel that is needed later: other batches, sampling, computing again', async () => {
  const [, model] = models[0]!;
  const { group, made } = await watched({ model, slots: 3, kvBlocks: 12, variants: 'hardware' });
  const engine = new Engine(group, { placing, slots: 3, tokensPerIteration: 96, prefixCaching: false });
  const before = made.beside;
  const prompt = Array.from({ length: 30 }, (_, index) => index + 5);
  const ask = (more: Partial<EngineRequest>) =>
    engine.submit({ prompt, maxTokens: 4, seed: 1, eosIds: [], onToken: () => false, ...more }).ended;
  const all = await Promise.all([
    ask({}),
    ask({ temperature: 0.8, topK: 5 }),
    ask({ temperature: 0.8, topP: 0.9, repetitionPenalty: 1.2 }),
    ask({ temperature: 0.8, minP: 0.1, frequencyPenalty: 0.5, logitBias: new Map([[5, 2]]) }),
    ask({ generatedSpans: [[10, 20]] }),
  ]);
  expect(all).toEqual(Array(5).fill('length'));
  expect(made.beside).toBeGreaterThan(before);
  expect(made.waited).toBe(0);
  await engine.dispose();
});

test('where that fails, they are compiled when they are recorded, with the same bits', async () => {
  const [, model] = models[0]!;
  const expected = await firstLogits(await watched({ model }));
  const broken = await watched({ model }, ({ gpu }) => {
    gpu.createComputePipelineAsync = () => Promise.reject(new Error('not today'));
  });
  expect(broken.made.waited).toBeGreaterThan(8);
  expect(firstDifference(expected, await firstLogits(broken))).toBe(-1);
});

test('an error of the weights ends the load with that error', async () => {
  const [, model] = models[0]!;
  const failing = watched({ model }, (device) => {
    device.createBuffer = () => {
      throw new Error('no room');
    };
  });
  await expect(failing).rejects.toThrow('no room');
});
