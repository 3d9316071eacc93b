import { describe, expect, test } from 'vitest';
import { openDevice } from '../../gpu/index.js';
import type { AdapterRequest, Buffer as GpuBuffer, Device } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { capacity, givenBudgets } from '../../model/compression/budgets.js';
import { compressionOptions, type KvPolicy } from '../../model/compression/options.js';
import { compressedReference } from '../../model/testing/reference/compression.js';
import { modelShape } from '../../model/shape.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { arrangedPlan, type Plan } from '../../placement/index.js';
import { randomArrangement } from '../../placement/testing/arrangements.js';
import { load } from '../faces/load.js';
import { openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';
import { drawn } from '../../gpu/testing/draw.js';

const WINDOW = 16;
const LENGTH = 300;
const BEHIND = 5;
const model: RandomModelOptions = {
  seed: 31,
  config: {
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 16,
    num_hidden_layers: 2,
    intermediate_size: 300,
  },
};
const counts = { numLayers: 2, numKvHeads: 4 };
const loads = [
  [20, 60, 110, 30],
  [90, 10, 40, 140],
];
const optionsOf = (policy: KvPolicy, budget = 0.3) =>
  compressionOptions({ policy, budget, window: WINDOW, poolWidth: 5, floor: 0.2, loads }, counts);

const tokens = (length: number, seed = 1): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + seed * 101 + ((i * i) % 53)) % 320);
const bytes = (row: Float32Array): Buffer => Buffer.from(row.slice().buffer);
const adapter = (await testAdapters()).at(-1)!.name;

type Setup = Partial<OpenRunnerOptions>;

const open = (policy: KvPolicy | 'none', setup: Setup = {}, budget?: number) =>
  openRunner({
    adapter,
    model,
    contextLength: 768,
    ...(policy !== 'none' && { compression: optionsOf(policy, budget) }),
    ...setup,
  });

/** Logits of the tokens behind a prompt, and what each head kept: [layer][kv head]. */
async function run(policy: KvPolicy | 'none', setup: Setup = {}, budget?: number) {
  const { runner, group } = await open(policy, setup, budget);
  try {
    const rows: Buffer[] = [];
    await runner.prefill(tokens(LENGTH), BEHIND + 1, { seed: 0 });
    const uses = await runner.cacheUse(0);
    const kept = keptOf(uses);
    // Every head once, whoever has copies of it.
    expect(uses.flatMap((use) => use.kept)).toHaveLength(kept.flat().length);
    const ids: number[] = [];
    for (let step = 0; step <= BEHIND; step++) {
      const [id] = await (step === 0 ? runner.sampleFirst() : runner.step());
      ids.push(id!);
      rows.push(bytes(await runner.slotLogits(0)));
    }
    await runner.release();
    const forced: Buffer[] = [];
    const text = [...tokens(LENGTH), ...ids.slice(0, BEHIND)];
    await runner.logits(
      text,
      true,
      (position, row) => position >= LENGTH - 1 && forced.push(bytes(row)),
      undefined,
      LENGTH,
    );
    expect(forced.map((row) => row.equals(rows[forced.indexOf(row)]!))).not.toContain(false);
    return { rows, kept, ids };
  } finally {
    group.dispose();
  }
}

function keptOf(uses: Awaited<ReturnType<Awaited<ReturnType<typeof open>>['runner']['cacheUse']>>): number[][] {
  const kept: number[][] = [];
  for (const { layer, head, entries } of uses.flatMap((use) => use.kept)) (kept[layer] ??= [])[head] = entries;
  return kept;
}

describe('compression in the running engine', () => {
  test.each(drawn(['snap', 'ada', 'static'] as const, 1, 'what is kept'))(
    "'%s' keeps the entries, and gives the logits, of a float64 model that never sees what was evicted",
    { timeout: 120_000 },
    async (policy) => {
      const { model: random } = randomFiles(model);
      const options = optionsOf(policy);
      const buffers = new Map<string, GpuBuffer>();
      const watched = async (request: AdapterRequest): Promise<Device> => {
        const device = await openDevice(request);
        const create = device.createBuffer.bind(device);
        device.createBuffer = (label, ...rest) => {
          const buffer = create(label, ...rest);
          buffers.set(label.split(' ')[0]!, buffer);
          return buffer;
        };
        return device;
      };
      const { runner, group, device } = await open(policy, { open: watched });
      try {
        const behind = tokens(BEHIND, 7);
        const expected = compressedReference(random.config, random.weights, tokens(LENGTH), behind, {
          policy,
          capacity: capacity(options, LENGTH),
          window: WINDOW,
          kernel: 5,
          alpha: 0.2,
          ...(policy === 'static' && { given: givenBudgets(options, counts, LENGTH) }),
        });
        expect(expected.margin).toBeGreaterThan(1e-5);
        await runner.logits(
          [...tokens(LENGTH), ...behind],
          true,
          (position, row) => {
            const want = expected.logits[position]!;
            const worst = Math.max(...row.map((value, id) => Math.abs(value - want[id]!)));
            expect(worst, `position ${position}`).toBeLessThan(2e-3);
          },
          undefined,
          LENGTH,
        );
        await runner.prefill(tokens(LENGTH), 1, { seed: 0 });
        const kept = keptOf(await runner.cacheUse(0));
        expect(kept).toEqual(expected.kept.map((layer) => layer.map((own) => own.length)));
        for (const [layer, heads] of expected.kept.entries()) {
          const cache = new Float32Array(await device.read(buffers.get(`layers.${layer}.k_cache`)!));
          const tables = new Uint32Array(await device.read(buffers.get(`layers.${layer}.block_tables`)!));
          for (const [head, positions] of heads.entries()) {
            const table = tables.subarray((head * tables.length) / 4, ((head + 1) * tables.length) / 4);
            expect(table[0]).toBe(LENGTH - positions.length);
            for (const [entry, position] of positions.entries()) {
              const want = expected.keys[layer]![position]!.subarray(head * 16, (head + 1) * 16);
              const physical = table[1 + (entry >> 6)]!;
              for (const [dim, value] of want.entries()) {
                const at = (((physical * 4 + (dim >> 2)) * 64 + (entry & 63)) << 2) + (dim & 3);
                expect(Math.abs(cache[at]! - value)).toBeLessThan(1e-3);
              }
            }
          }
        }
      } finally {
        group.dispose();
      }
    },
  );

  const whole = Object.fromEntries(
    (['none', 'snap', 'ada', 'static'] as const).map((policy) => [
      policy,
      lazily(() => run(policy, { prefillChunk: 512 })),
    ]),
  ) as Record<KvPolicy | 'none', () => ReturnType<typeof run>>;

  // Heads with gaps, none on some rank, other places in each layer.
  const shape = modelShape(randomFiles(model).model.config);
  const arranged = (ranks: number, copies = 0): Plan =>
    arrangedPlan(randomArrangement(shape, ranks, { seed: 5, copies }), shape, 'sequences');

  const setups: [KvPolicy, string, number, Setup?][] = [
    ['ada', 'tp', 2, { virtual: false }],
    ['ada', 'tp', 4],
    ['static', 'tp', 4],
    ['snap', 'pp x tp', 4],
    ['ada', 'token', 3],
    ['ada', 'adp', 2],
    ['ada', 'tp x token', 4],
    ['ada', 'arranged', 3, { plan: arranged(3) }],
    ['static', 'arranged', 2, { plan: arranged(2) }],
    ['ada', 'arranged with copies', 3, { plan: arranged(3, 3) }],
    ['ada', 'arranged with copies that share lanes', 3, { plan: { ...arranged(3, 3), sharing: 'lanes' } }],
    ['ada', 'single', 1, { prefillChunk: 16 }],
    ['snap', 'single', 1, { prefillChunk: 48, kv: 'f16' }],
    ['ada', 'tp', 2, { prefillChunk: 48, kv: 'q8' }],
  ];
  test.each(drawn(setups, 1, 'compressed plans'))(
    "'%s', plan %s of %i: the same bits as one rank in one step",
    { timeout: 120_000 },
    async (policy, plan, ranks, setup) => {
      const expected = setup?.kv ? await run(policy, { prefillChunk: 512, kv: setup.kv }) : await whole[policy]();
      const got = await run(policy, { plan, ranks, virtual: true, ...setup });
      expect(got.kept).toEqual(expected.kept);
      expect(got.ids).toEqual(expected.ids);
      for (const [step, row] of got.rows.entries()) expect(row.equals(expected.rows[step]!), `step ${step}`).toBe(true);
    },
  );

  test(
    'a budget of 1 gives the bits of a cache that is never compressed, a smaller one does not',
    { timeout: 120_000 },
    async () => {
      const plain = await whole.none();
      const all = await run('ada', {}, 1);
      expect(all.kept).toEqual([]);
      for (const [step, row] of all.rows.entries()) expect(row.equals(plain.rows[step]!), `step ${step}`).toBe(true);
      const some = await whole.ada();
      expect(some.rows[0]!.equals(plain.rows[0]!), 'the prompt is computed before it is compressed').toBe(true);
      expect(some.rows.slice(1).some((row, step) => row.equals(plain.rows[step + 1]!))).toBe(false);
    },
  );

  test(
    'sequences of different lengths side by side, to the end of the context: each as alone, and all blocks come back',
    { timeout: 120_000 },
    async () => {
      const lengths = [10, 300, 90];
      const steps = 200;
      const alone: Buffer[][] = [];
      const { runner, group } = await open('ada', { slots: 3, contextLength: 500 });
      const decode = async (slots: readonly number[]): Promise<Buffer[][]> => {
        for (const slot of slots)
          await runner.prefill(tokens(lengths[slot]!, slot), steps, { seed: 0 }, undefined, slot);
        const rows: Buffer[][] = slots.map(() => []);
        for (let step = 0; step < steps; step++) {
          await (step === 0 ? runner.sampleFirst() : runner.step());
          if (step < 3 || step > steps - 3) {
            for (const [at, slot] of slots.entries()) rows[at]!.push(bytes(await runner.slotLogits(slot)));
          }
        }
        for (const slot of slots) await runner.release(slot);
        return rows;
      };
      try {
        for (const slot of lengths.keys()) alone.push(...(await decode([slot])));
        const together = await decode([0, 1, 2]);
        for (const [slot, rows] of together.entries()) {
          for (const [step, row] of rows.entries())
            expect(row.equals(alone[slot]![step]!), `slot ${slot}, row ${step}`).toBe(true);
        }
        // Slots and blocks that others had hold the same again.
        expect((await decode([2]))[0]!.every((row, step) => row.equals(alone[2]![step]!))).toBe(true);
      } finally {
        group.dispose();
      }
    },
  );

  test(
    'tokens that were generated before are computed again over the compressed cache: the same bits',
    { timeout: 120_000 },
    async () => {
      const { ids, rows } = await whole.ada();
      const { runner, group } = await open('ada');
      try {
        await runner.prefill(tokens(LENGTH), 20, { seed: 0 });
        await runner.sampleFirst();
        await runner.all((rank) =>
          rank.recompute({ slot: 0, tokens: Uint32Array.from(ids.slice(0, 4)), start: LENGTH, last: false }),
        );
        const seen = Uint32Array.from([...tokens(LENGTH), ...ids.slice(0, 5)]);
        await runner.all((rank) => rank.resume(0, { seed: 0, counter: 4 }, seen, ids[4]!, LENGTH + 4));
        const [id] = (await runner.all((rank) => rank.step(0, true, LENGTH + 5)))!;
        expect(id).toBe(ids[5]);
        expect(bytes(await runner.slotLogits(0)).equals(rows[5]!)).toBe(true);
      } finally {
        group.dispose();
      }
    },
  );

  test('stats tell what is left of the prompt, in bytes of its blocks', { timeout: 120_000 }, async () => {
    const { files } = randomFiles(model);
    const options = { adapter, contextLength: 768, kvBudget: 0.25, kvPolicy: 'snap', kvWindow: WINDOW } as const;
    await expect(load(files, { ...options, prefillChunk: 8 })).rejects.toThrow(
      /kvWindow 16: a prompt step has room for 8 rows/,
    );
    const loaded = await load(files, { ...options, plan: 'tp', ranks: 2, virtualRanks: true });
    try {
      const { stats } = await loaded.generate(tokens(400), { maxTokens: 2 }).result;
      const headBlock = 2 * 64 * 16 * 4;
      const half = { bytes_before: 2 * 2 * 7 * headBlock, bytes_after: 2 * 2 * 2 * headBlock };
      expect(stats.kv_compression).toEqual({
        policy: 'snap',
        budget: 0.25,
        prompt_tokens: 400,
        kept_tokens: { mean: 100, least: 100, most: 100 },
        bytes_before: 2 * half.bytes_before,
        bytes_after: 2 * half.bytes_after,
        ranks: [half, half],
      });
      const short = await loaded.generate(tokens(10), { maxTokens: 2 }).result;
      expect(short.stats.kv_compression).toBeUndefined();
      await expect(loaded.logits(tokens(5), { promptLength: 6 })).rejects.toThrow(
        /promptLength 6: .* 1 to the 5 tokens/,
      );
    } finally {
      await loaded.dispose();
    }
  });
});

function lazily<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}
