import { expect, test } from 'vitest';
import { Random } from '../../../base/random.js';
import { SplitkvError } from '../../../base/errors.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawSeed, sweepsAll } from '../../../gpu/testing/draw.js';
import { modelShape } from '../../../model/shape.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import { checkPlan, type Degrees, makePlan, type Plan, planOfDegrees, POLICIES } from '../../../placement/index.js';
import { openRunner } from '../open_runner.js';
import { randomFiles } from '../random_source.js';
import { somePrompt } from '../run_bits.js';

/** Models and plans drawn anew each run: plans of degrees, or of any policy on any ranks, of models of several families and any heads. */

const SWEPT = 24;
/** More would share one device. */
const MOST_RANKS = 9;

const adapter = (await testAdapters()).at(-1)!.name;

function drawModel(random: Random, turn: number): RandomModelOptions {
  const one = <T>(items: readonly T[]): T => items[random.integer(items.length)]!;
  const kvHeads = one([1, 2, 3, 4]);
  const heads = {
    num_key_value_heads: kvHeads,
    num_attention_heads: kvHeads * one([1, 2, 3]),
    head_dim: one([8, 16, 24]),
    hidden_size: one([64, 72]),
    intermediate_size: one([100, 256, 300]),
    num_hidden_layers: one([2, 3]),
    // Of fewer rows than a part of a table has, too.
    vocab_size: one([60, 320]),
  };
  const latent = { num_attention_heads: one([2, 3, 5, 8]) };
  const families: readonly Record<string, unknown>[] = [
    { model_type: 'deepseek_v3', ...latent },
    { model_type: 'qwen3_moe', ...heads, num_experts: one([3, 8]), num_experts_per_tok: 2, moe_intermediate_size: 40 },
    { model_type: 'llama', ...heads },
    {
      model_type: 'gpt_oss',
      ...heads,
      sliding_window: one([9, 128]),
      num_local_experts: one([4, 6]),
      num_experts_per_tok: 2,
    },
    { model_type: 'minicpm3', ...latent },
    { model_type: 'qwen3', ...heads },
    { model_type: 'deepseek_v2', ...latent },
  ];
  return { seed: random.integer(1000), config: families[turn % families.length]! };
}

/** A plan of the model on some ranks, and how it was asked for. */
function drawPlan(random: Random, options: RandomModelOptions): { readonly name: string; readonly plan: Plan } {
  const shape = modelShape(randomFiles(options).model.config);
  const one = <T>(items: readonly T[]): T => items[random.integer(items.length)]!;
  for (;;) {
    const degrees: Degrees = {
      tensor: one([1, 1, 2, 3, 4]),
      token: one([1, 2, 3]),
      sequence: one([1, 1, 2, 4]),
      pipeline: one([1, 1, 2]),
    };
    const asked = random.integer(2) === 0;
    const { policy, worldSize } = asked
      ? planOfDegrees(degrees)
      : { policy: one(POLICIES), worldSize: 2 + random.integer(MOST_RANKS - 1) };
    if (worldSize < 2 || worldSize > MOST_RANKS) continue;
    try {
      const plan = makePlan(policy, worldSize, shape, asked ? degrees : {});
      checkPlan(plan, shape);
      return { name: `${policy} on ${worldSize}${asked ? `, ${JSON.stringify(degrees)}` : ''}`, plan };
    } catch (error) {
      if (!(error instanceof SplitkvError) || error.code !== 'usage') throw error;
    }
  }
}

const prompt = (length: number, seed = 0): number[] => somePrompt(length, seed).map((id) => id % 60);
const LENGTHS = [270, 3, 40, 129, 17, 300, 5, 64];

/** Logits of a prompt's last rows and of generated ones, by slot; and what ranks read of the caches then. */
async function run(model: RandomModelOptions, slots: number, plan?: Plan): Promise<{ rows: Buffer[]; idle: number[] }> {
  const { runner, group } = await openRunner({
    adapter,
    model,
    ...(plan && { plan, virtual: true }),
    slots,
    contextLength: 320,
    prefillChunk: 208,
  });
  try {
    const rows: Buffer[] = [];
    const add = (row: Float32Array): number => rows.push(Buffer.from(row.slice().buffer));
    await runner.logits(prompt(LENGTHS[0]!), true, (_position, row) => add(row));
    for (let slot = 0; slot < slots; slot++) {
      await runner.prefill(prompt(LENGTHS[slot % LENGTHS.length]!, slot), 8, { seed: 0 }, undefined, slot);
    }
    for (let step = 0; step < 2; step++) {
      await runner.step();
      for (let slot = 0; slot < slots; slot++) add(await runner.slotLogits(slot));
    }
    const read = await runner.kvTokens();
    const { owners } = runner;
    const idle = [...read.keys()].filter(
      (rank) => owners.split === 1 && owners.keptSlots(rank) > 0 && read[rank]!.every((tokens) => tokens === 0),
    );
    return { rows, idle };
  } finally {
    group.dispose();
  }
}

const random = new Random(drawSeed);
const turn = random.integer(100);
const cases = Array.from({ length: sweepsAll ? SWEPT : 1 }, (_, at) => {
  const model = drawModel(random, turn + at);
  return { model, ...drawPlan(random, model) };
});
test.each(cases)(
  `$model.config.model_type, $name: the bits of one rank, and work for every rank (SPLITKV_SEED=${drawSeed})`,
  { timeout: 300_000 },
  async ({ model, plan }) => {
    const slots = Math.min(16, 2 * plan.worldSize);
    const [one, many] = [await run(model, slots), await run(model, slots, plan)];
    expect(many.rows).toHaveLength(one.rows.length);
    expect(
      many.rows.findIndex((row, at) => !row.equals(one.rows[at]!)),
      'first row that differs',
    ).toBe(-1);
    expect(many.idle, 'ranks that keep sequences and read none').toEqual([]);
  },
);
