import { attentionAppend } from '../../../shaders/attention/attention_append/index.js';
import { attentionMerge } from '../../../shaders/attention/attention_merge/index.js';
import { attentionSplit } from '../../../shaders/attention/attention_split/index.js';
import { mlaSplit } from '../../../shaders/attention/mla_split/index.js';
import { describe, expect, test } from 'vitest';
import { openDevice, Program, type TimedPasses } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import type { LoadOptions } from '../contracts/api.js';
import { attentionMs, busiest } from './stats.js';
import { load } from '../faces/load.js';
import { ATTENTION_KERNELS } from './attention_times.js';
import type { RankCounts } from '../contracts/rank.js';
import { openRunner } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';

const adapter = (await testAdapters()).at(-1)!.name;
const device = await openDevice({ adapterName: adapter });
const hasClock = device.gpu.features.has('timestamp-query');

describe("attention's time", () => {
  const prompt = Array.from({ length: 300 }, (_, i) => (i * 37) % 320);
  const options = { maxTokens: 12, ignoreEos: true, temperature: 0.7, seed: 4 };
  const rows: readonly (readonly [plan: string, type: string, how: LoadOptions])[] = [
    ['tp', 'llama', { ranks: 2 }],
    ['token', 'llama', { ranks: 2 }],
    ['token', 'deepseek_v3', { ranks: 2 }],
    ['tp', 'llama', { ranks: 2, virtualRanks: true }],
  ];
  test.each(drawn(rows, 1, 'attention times'))('%s, %s, %o: told where ranks have clocks', async (plan, type, how) => {
    const { files } = randomFiles({ seed: 9, config: { model_type: type } });
    const model = await load(files, { adapter, contextLength: 512, plan, ...how });
    const without = await model.generate(prompt, options).result;
    const { tokens, stats } = await model.generate(prompt, { ...options, timeAttention: true }).result;
    // One token has no decode step to be timed.
    const one = await model.generate(prompt, { ...options, maxTokens: 1, timeAttention: true }).result;
    await model.dispose();
    expect(tokens).toEqual(without.tokens);
    expect(without.stats.attention).not.toHaveProperty('ms_per_step');
    expect(one.stats.attention).not.toHaveProperty('ms_per_step');
    const { ms_per_step: ms, ...counted } = stats.attention!;
    expect(counted).toEqual(without.stats.attention);
    if (!hasClock || how.virtualRanks) return expect(ms).toBeUndefined();
    expect(ms).toHaveLength(2);
    expect(ms!.every((each) => each >= 0) && ms!.some((each) => each > 0)).toBe(true);
  });

  test('as many decode steps as were asked for, at most, and what they compute stays', async () => {
    const { runner, group } = await openRunner({
      adapter,
      model: { seed: 9 },
      plan: 'tp',
      ranks: 2,
      contextLength: 512,
      prefillChunk: 64,
    });
    const run = async (): Promise<number[]> => {
      await runner.prefill(prompt, 30, { seed: 1 });
      const ids = [...(await runner.sampleFirst())];
      for (let step = 0; step < 8; step++) ids.push(...(await runner.step()));
      await runner.release();
      return ids;
    };
    const timed = async (): Promise<number[]> => (await runner.counts()).map(({ timedSteps }) => timedSteps);
    const expected = await run();
    expect(await timed()).toEqual([0, 0]);
    expect(await runner.timeAttention(3)).toBe(hasClock);
    expect(await run()).toEqual(expected);
    // A step whose times aren't known yet keeps the next from being timed.
    for (const steps of await timed()) {
      expect(steps).toBeLessThanOrEqual(hasClock ? 3 : 0);
      expect(steps).toBeGreaterThanOrEqual(hasClock ? 1 : 0);
    }
    group.dispose();
  });

  test('dispatches that are timed have passes of their own, in the same order', async () => {
    const dispatches = ['other', 'attention', 'attention', 'other'].map((label) => ({
      label,
      variant: { compiled: { pipeline: {} }, grid: [1, 1, 1] },
      bindGroup: {},
      rowsOf: () => 1,
      runsIn: undefined,
    }));
    const pieces = [{ dispatches, exchange: undefined }] as unknown as Program['pieces'];
    const program = new Program('mixed', device, pieces, undefined);
    const order = async (timed?: TimedPasses): Promise<string[]> => {
      const said: string[] = [];
      const encoder = {
        beginComputePass: (descriptor?: GPUComputePassDescriptor) => {
          said.push(descriptor?.timestampWrites ? 'timed' : 'pass');
          return { setPipeline() {}, setBindGroup() {}, dispatchWorkgroups: () => said.push('dispatch'), end() {} };
        },
      } as unknown as GPUCommandEncoder;
      await program.run(encoder, { rows: [1], chunks: 1 }, { timed });
      return said;
    };
    const kernels = new Set(['attention']);
    const next = (): GPUComputePassTimestampWrites => ({ querySet: {} as GPUQuerySet });
    expect(await order()).toEqual(['pass', 'dispatch', 'dispatch', 'dispatch', 'dispatch']);
    const cut = ['pass dispatch', 'timed dispatch dispatch', 'pass dispatch'];
    expect((await order({ kernels, next })).join(' ')).toBe(cut.join(' '));
    expect(program.count(kernels)).toBe(2);
  });
});

test('kernels of attention have the names that are looked for', () => {
  const kernels = [attentionAppend, attentionMerge, attentionSplit, mlaSplit];
  expect(new Set(kernels.map(({ name }) => name))).toEqual(ATTENTION_KERNELS);
});

describe('by counts', () => {
  const counts = (timedSteps: number, ms: number): RankCounts => ({
    exchanges: 0,
    messages: 0,
    bytesSent: 0,
    bytesReceived: 0,
    moveMs: 0,
    waitMs: 0,
    steps: 0,
    stepBytes: 0,
    stepMs: 0,
    timedSteps,
    attentionMs: ms,
  });
  test('a mean of the steps since', () => {
    expect(attentionMs([counts(4, 8), counts(2, 1)])).toEqual([2, 0.5]);
    expect(attentionMs([counts(4, 8), counts(2, 1)], [counts(2, 2), counts(1, 1)])).toEqual([3, 0]);
  });
  test("nothing where a rank timed no step, or its clock doesn't go", () => {
    expect(attentionMs([counts(4, 8), counts(0, 0)])).toBeUndefined();
    expect(attentionMs([counts(4, 8), counts(2, 1)], [counts(2, 2), counts(2, 1)])).toBeUndefined();
    expect(attentionMs([counts(4, 0), counts(2, 0)])).toBeUndefined();
  });
  test('all ranks wait for the busiest of each layer', () => {
    const byRank = [
      [3, 1],
      [1, 3],
    ];
    expect(busiest(byRank)).toEqual({ busiest_kv_tokens_per_step: 6, utilisation: 8 / 12 });
  });
});
