import { beforeAll, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import type { DrawOptions } from '../../contracts/rank.js';
import type { SlotDriver } from '../slot_driver.js';
import { openRunner, type OpenRunnerOptions } from '../open_runner.js';
import { drawn } from '../../../gpu/testing/draw.js';

// The quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1)!.name;
const VOCAB = 9000;
const SLOTS = 3;
/** Eight segments; on two ranks a slice of the vocabulary has several tiles. */
const model: RandomModelOptions = {
  seed: 31,
  config: { num_attention_heads: 8, num_key_value_heads: 8, head_dim: 8, intermediate_size: 300, vocab_size: VOCAB },
};

/** Requests that begin and end in slots, and the steps that follow; what a batch needs goes up and down. */
interface Phase {
  readonly ends?: readonly number[];
  readonly starts?: readonly (readonly [slot: number, options: DrawOptions])[];
  readonly steps: number;
}

/** Tokens of every rank's slice that take turns: how often each was sampled decides what comes. */
const turns = { logitBias: new Map([40, 3100, 4600, 8999].map((id) => [id, 60])), frequencyPenalty: 2 };

const phases: readonly Phase[] = [
  {
    starts: [
      // Below 1: tokens seen are likelier, so what each rank has seen decides what comes.
      [0, { seed: 1, repetitionPenalty: 0.35 }],
      [1, { seed: 2, temperature: 1.2, topK: 40, topP: 0.9, repetitionPenalty: 0.5 }],
    ],
    steps: 6,
  },
  { ends: [1], steps: 3 },
  { starts: [[2, { seed: 3, temperature: 1, topP: 0.95 }]], steps: 4 },
  // The greedy one's penalty goes by the tokens sampled while all logits travelled, too.
  { ends: [2], steps: 8 },
  { starts: [[1, { seed: 4, temperature: 3, topK: 64 }]], steps: 4 },
  { ends: [0, 1], starts: [[2, { seed: 5 }]], steps: 2 },
  // Greedy controls beside a request without any.
  { starts: [[0, { seed: 6, ...turns, minTokens: 5, endIds: [40, 8999] }]], steps: 9 },
  {
    starts: [[1, { seed: 7, ...turns, temperature: 0.8, topK: 40, presencePenalty: 0.3, repetitionPenalty: 1.1 }]],
    steps: 6,
  },
  // min_p takes all logits to one rank; the others' counts go on.
  {
    ends: [2],
    starts: [[2, { seed: 8, ...turns, temperature: 1.5, minP: 0.01, minTokens: 3, endIds: [3100] }]],
    steps: 6,
  },
  { ends: [2, 1], steps: 6 },
];

const promptOf = (slot: number): number[] =>
  Array.from({ length: 5 + 3 * slot }, (_, i) => (i * 1009 + slot * 77) % VOCAB);

interface Outcome {
  /** Of every step, by slot; of slots that have no request, nothing. */
  readonly ids: readonly (readonly number[])[];
  /** Logits that each phase's last tokens were sampled from. */
  readonly logits: readonly Buffer[];
  /** Bytes that the last rank sent in each phase's last step. */
  readonly sent: readonly number[];
}

async function play(runner: SlotDriver): Promise<Outcome> {
  const ids: number[][] = [];
  const logits: Buffer[] = [];
  const sent: number[] = [];
  const active = new Set<number>();
  for (const { ends = [], starts = [], steps } of phases) {
    for (const slot of ends) {
      await runner.release(slot);
      active.delete(slot);
    }
    const decodes = active.size > 0;
    for (const [slot, options] of starts) {
      await runner.prefill(promptOf(slot), 40, options, undefined, slot);
      active.add(slot);
    }
    for (let step = 0; step < steps; step++) {
      const before = (await runner.counts()).at(-1)!.bytesSent;
      const all = await (decodes || step > 0 ? runner.step() : runner.sampleFirst());
      sent[logits.length] = (await runner.counts()).at(-1)!.bytesSent - before;
      ids.push([...active].sort((a, b) => a - b).map((slot) => all[slot]!));
    }
    logits.push(Buffer.from((await runner.slotLogits([...active][0]!)).buffer));
  }
  return { ids, logits, sent };
}

async function run(options: Partial<OpenRunnerOptions>): Promise<Outcome> {
  const { runner, group } = await openRunner({
    adapter,
    model,
    slots: SLOTS,
    contextLength: 64,
    prefillChunk: 16,
    virtual: true,
    ...options,
  });
  try {
    return await play(runner);
  } finally {
    group.dispose();
  }
}

let one: Outcome;
beforeAll(async () => {
  one = await run({});
}, 180_000);

test('one rank: tokens that were sampled come again', () => {
  const ids = one.ids.slice(0, 21).map(([id]) => id!);
  const prompt = promptOf(0);
  expect(ids.filter((id, step) => !prompt.includes(id) && ids.indexOf(id) < step).length).toBeGreaterThan(2);
});

const PLANS: [plan: string, ranks: number, more?: Partial<OpenRunnerOptions>][] = [
  ['tp', 2, { virtual: false }],
  ['tp', 3],
  ['tp', 8],
  ['pp x tp', 4],
];
test.each(drawn(PLANS, 1, 'sampling plans'))(
  '%s on %i ranks samples the same tokens',
  { timeout: 180_000 },
  async (plan, ranks, more) => {
    const many = await run({ plan, ranks, ...more });
    expect(many.ids).toEqual(one.ids);
    const different = many.logits.findIndex((row, phase) => !row.equals(one.logits[phase]!));
    expect(different, 'first phase whose logits differ').toBe(-1);
  },
);

test('one rank: tokens take turns, and those that end the text wait', () => {
  const biased = [...turns.logitBias.keys()];
  const controlled = one.ids.slice(27).map(([id]) => id!);
  expect(new Set(controlled)).toEqual(new Set(biased));
  for (const id of controlled.slice(0, 5)) expect([40, 8999]).not.toContain(id);
});

test('what travels follows what the requests need, up and down again', { timeout: 180_000 }, async () => {
  const { sent } = await run({ plan: 'tp', ranks: 2 });
  const [topK, greedy, whole, again, topK64, last] = sent;
  // Rank 1 has tokens 4544 to 8999: 3 tiles of up to 2048, 8 bytes per tile, where all logits take 4 bytes per token.
  expect(whole! - greedy!).toBe(SLOTS * (4456 * 4 - 3 * 8));
  expect(topK! - greedy!).toBe(SLOTS * (64 - 3) * 8);
  expect([again, topK64, last]).toEqual([greedy, topK, greedy]);
});

/** Ids of 10 steps of a request; where `interrupted`, its cache is given up after 5 and computed again. */
async function resumed(
  options: Partial<OpenRunnerOptions>,
  interrupted: boolean,
  sampling: DrawOptions,
): Promise<number[]> {
  const { runner, group } = await openRunner({ adapter, model, contextLength: 64, virtual: true, ...options });
  const prompt = Uint32Array.from(promptOf(2));
  const ids: number[] = [];
  const step = async (decodes: boolean): Promise<void> => {
    ids.push((await runner.all((rank) => rank.step(0, decodes, prompt.length + ids.length)))![0]!);
  };
  try {
    const run = { slot: 0, tokens: prompt, start: 0, last: false };
    await runner.all((rank) => rank.setBlocks(0, [0], 0));
    await runner.all((rank) => rank.prefill({ ...run, last: true }));
    await runner.all((rank) => rank.start(0, sampling, prompt));
    for (let count = 0; count < 10; count++) {
      if (interrupted && count === 5) {
        const generated = Uint32Array.from(ids);
        await runner.all((rank) => rank.release(0));
        await runner.all((rank) => rank.setBlocks(0, [0], 0));
        await runner.all((rank) => rank.prefill(run));
        await runner.all((rank) => rank.recompute({ ...run, tokens: generated.subarray(0, 4), start: prompt.length }));
        const seen = Uint32Array.from([...prompt, ...generated]);
        await runner.all((rank) => rank.resume(0, { ...sampling, counter: 5 }, seen, generated[4]!, prompt.length + 4));
      }
      await step(count > 0);
    }
    return ids;
  } finally {
    group.dispose();
  }
}

test.each<[string, DrawOptions]>([
  ['what was seen', { seed: 9, temperature: 1, topK: 30, repetitionPenalty: 0.4 }],
  ['how often', { seed: 9, ...turns, temperature: 0.2, presencePenalty: 0.2 }],
  ['how many there were', { seed: 9, ...turns, temperature: 1, minP: 0.1, minTokens: 8, endIds: [40, 3100] }],
])(
  'a request whose cache is computed again goes on with the same tokens: %s',
  { timeout: 180_000 },
  async (_name, sampling) => {
    const expected = await resumed({}, false, sampling);
    expect(await resumed({}, true, sampling)).toEqual(expected);
    expect(await resumed({ plan: 'tp', ranks: 2 }, false, sampling)).toEqual(expected);
    expect(await resumed({ plan: 'tp', ranks: 2 }, true, sampling)).toEqual(expected);
  },
);
