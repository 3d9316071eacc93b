import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { compressionOptions } from '../../model/compression/options.js';
import { modelShape } from '../../model/shape.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { arrangedPlan, type CopySharing, type Plan } from '../../placement/index.js';
import { randomArrangement } from '../../placement/testing/arrangements.js';
import { load } from '../faces/load.js';
import type { SlotDriver } from '../testing/slot_driver.js';
import { openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { firstDifference } from '../testing/run_bits.js';
import { randomFiles } from '../testing/random_source.js';
import type { HandedKv } from '../contracts/prefill_worker.js';
import { SplitkvPrefill } from './open_prefill.js';

const adapter = (await testAdapters()).at(-1)!.name;
const models: Record<string, RandomModelOptions> = {
  // Odd widths, three kv heads: no even cut.
  llama: { seed: 41, config: { num_attention_heads: 6, num_key_value_heads: 3, head_dim: 24, hidden_size: 72 } },
  deepseek: { seed: 42, config: { model_type: 'deepseek_v3' } },
};
const shape = modelShape(randomFiles(models['llama']!).model.config);
/** Heads anywhere, other places in every layer. */
const arranged = arrangedPlan(randomArrangement(shape, 3, { seed: 3 }), shape, 'lanes');
const copied = (sharing: CopySharing): Plan =>
  arrangedPlan(randomArrangement(shape, 3, { seed: 5, copies: 2, sharing }), shape, sharing);
const compression = (policy: 'ada' | 'snap') =>
  compressionOptions({ policy, budget: 0.3, window: 16, poolWidth: 5 }, { numLayers: 2, numKvHeads: 3 });
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * 37 + 11 + ((i * i) % 53)) % 320);
const steps = 4;

/** Ids and logits of a few tokens after a prompt that `begin` brings into the cache. */
async function rowsAfter(runner: SlotDriver, begin: () => Promise<void>): Promise<Buffer[]> {
  await begin();
  const rows: Buffer[] = [];
  for (let step = 0; step < steps; step++) {
    const ids = await (step === 0 ? runner.sampleFirst() : runner.step());
    rows.push(Buffer.from(ids.slice().buffer), Buffer.from((await runner.slotLogits(0)).slice().buffer));
  }
  await runner.release();
  return rows;
}

describe('prefill worker of our own kernels', () => {
  const plans: [string, number, keyof typeof models, Partial<OpenRunnerOptions>][] = [
    ['single', 1, 'llama', { kv: 'f16', weights: 'q4' }],
    ['token', 3, 'llama', {}],
    ['pp x token', 4, 'llama', { kv: 'q8' }],
    ['tp x token', 6, 'llama', {}],
    ['pp', 2, 'llama', { virtual: false }],
    ['sp', 2, 'llama', {}],
    ['adp', 3, 'llama', {}],
    ['tp', 4, 'llama', {}],
    ['arranged', 3, 'llama', { plan: arranged }],
    ['pp', 2, 'deepseek', { kv: 'q8' }],
    ['tp+sp', 2, 'deepseek', {}],
    // Copies of heads, prompts that are compressed before they are handed over, and both.
    ['copies by lanes', 3, 'llama', { plan: copied('lanes'), kv: 'f16' }],
    ['copies by sequences', 3, 'llama', { plan: copied('sequences') }],
    ['copies by lanes, compressed,', 3, 'llama', { plan: copied('lanes'), compression: compression('ada') }],
    ['copies by sequences, compressed,', 3, 'llama', { plan: copied('sequences'), compression: compression('ada') }],
    ['arranged, compressed,', 3, 'llama', { plan: arranged, compression: compression('ada'), kv: 'q8' }],
    ['single', 1, 'llama', { compression: compression('ada'), kv: 'f16' }],
    ['tp', 3, 'llama', { compression: compression('ada'), kv: 'f16' }],
    ['pp x token', 4, 'llama', { compression: compression('ada') }],
    ['adp', 3, 'llama', { compression: compression('snap') }],
  ];
  test.each(drawn(plans, 1, 'prefill worker'))(
    'plan %s on %i ranks, %s: the bits of ranks that compute prompts themselves',
    async (plan, ranks, model, more) => {
      const shared = { adapter, model: models[model]!, contextLength: 400, ...more };
      const worker = new SplitkvPrefill((await openRunner({ ...shared, plan: 'single', virtual: true })).group);
      const { runner, group } = await openRunner({ virtual: true, slots: 3, plan, ranks, ...shared });
      for (const length of [64, 330]) {
        const tokens = prompt(length);
        const own = await rowsAfter(runner, () => runner.prefill(tokens, steps, { seed: 0 }));
        const handed = await worker.prefill(tokens);
        const taken = await rowsAfter(runner, () => runner.takeOver(tokens, steps, { seed: 0 }, handed));
        expect(firstDifference(taken, own), `${length} tokens: first row that differs`).toBe(-1);
      }
      await worker.dispose();
      group.dispose();
    },
  );

  test('prompts are computed in order; one that is aborted leaves the worker usable', async () => {
    const worker = new SplitkvPrefill(
      (await openRunner({ adapter, model: models['llama']!, contextLength: 400 })).group,
    );
    const control = new AbortController();
    const order: string[] = [];
    const note =
      (name: string) =>
      (kv: HandedKv): HandedKv => {
        order.push(name);
        return kv;
      };
    const long = worker.prefill(prompt(330)).then(note('long'));
    const dropped = worker.prefill(prompt(300), control.signal);
    const short = worker.prefill(prompt(5)).then(note('short'));
    control.abort();
    await expect(dropped).rejects.toMatchObject({ code: 'aborted' });
    expect((await long).blocks).toBe(6);
    expect(await short).toMatchObject({ tokens: 5, blocks: 1 });
    expect(order).toEqual(['long', 'short']);
    await worker.dispose();
  });

  test('load: the same text and the same logits', async () => {
    const { files } = randomFiles(models['llama']!);
    const options = { adapter, contextLength: 400, ranks: 2, plan: 'token', virtualRanks: true } as const;
    const texts: number[][] = [];
    const logits: Float32Array[][] = [];
    for (const prefill of [undefined, { kind: 'splitkv' } as const]) {
      const model = await load(files, { ...options, ...(prefill && { prefill }) });
      expect(model.info.prefill).toEqual(
        prefill && {
          kind: 'splitkv',
          workers: 1,
          adapter: model.info.adapter.name,
          weightBytes: model.info.ranks[0]!.weightBytes,
        },
      );
      const { tokens } = await model.generate(prompt(100), { maxTokens: 8, temperature: 0.8, seed: 3 }).result;
      texts.push([...tokens]);
      // Those of the prompt are computed on the ranks: what is handed over has none.
      logits.push([...(await model.logits(prompt(100), { all: true })).rows, ...(await model.logits(prompt(70))).rows]);
      await expect(model.generate(prompt(401)).result).rejects.toMatchObject({ code: 'context_full' });
      await model.dispose();
    }
    expect(texts[1]).toEqual(texts[0]);
    expect(logits[0]).toHaveLength(101);
    expect(logits[1]).toEqual(logits[0]);
  });

  test.each<[unknown, string]>([
    [{ kind: 'splitvk' }, "prefill kind 'splitvk': use splitkv. Did you mean 'splitkv'?"],
    [{ kind: 'splitkv', adaptor: 'x' }, "prefill: unknown option 'adaptor'. Did you mean 'adapter'?"],
    ['splitkv', 'expected { kind:'],
    [{ kind: 'splitkv', adapter: 3 }, 'prefill adapter 3: expected a name'],
    [{ kind: 'onnxruntime' }, "prefill kind 'onnxruntime': use splitkv"],
    [{ kind: 'splitkv', runtime: '/ort/' }, "prefill: unknown option 'runtime'"],
  ])('load refuses prefill %j', async (prefill, message) => {
    const { files } = randomFiles(models['llama']!);
    const refused = load(files, { adapter, prefill: prefill as never });
    await expect(refused).rejects.toThrow(SplitkvError);
    await expect(refused).rejects.toThrow(message);
  });
});
