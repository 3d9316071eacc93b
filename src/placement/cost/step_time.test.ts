import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { range } from '../../base/lists.js';
import { makePlan } from '../make/make_plan.js';
import type { ModelShape, Plan } from '../plan.js';
import { POLICIES } from '../make/policy.js';
import { LAYER, machineOf, workOf } from '../testing/machine.js';
import { anyShape, gqaShape, mlaShape } from '../testing/shapes.js';
import { generatedStep, promptTime } from './step_time.js';
import type { ModelWork } from './step_rows.js';

const generated = (
  policy: string,
  ranks: number,
  work: ModelWork,
  machine = machineOf(ranks),
  slots = 1,
  length = 4096,
) => generatedStep(makePlan(policy, ranks, work.shape), work, machine, slots, length);
const prompt = (
  policy: string,
  ranks: number,
  work: ModelWork,
  length: number,
  chunk = 512,
  machine = machineOf(ranks),
) => promptTime(makePlan(policy, ranks, work.shape), work, machine, length, chunk).seconds;

/** One layer in round numbers, and nothing that every rank repeats. */
const shape: ModelShape = gqaShape(4, { numLayers: 1, vocabSize: 256, mlpSegments: Array(8).fill(32) });
const work = workOf(shape, {
  sizes: {
    layers: [
      {
        attentionSegments: [1000, 1000, 1000, 1000],
        attentionShared: 0,
        mlpSegments: Array(8).fill(1000),
        mlpShared: 0,
        expert: 0,
        kvToken: 1,
      },
    ],
    embeddingRow: 100,
    headRow: 100,
    tied: false,
    finalNorm: 0,
  },
});

describe('a step of generated rows', () => {
  test('by hand: weights, cache and head', () => {
    const { seconds, exchanges } = generated('single', 1, work, machineOf(1), 2, 1000);
    const perByte = 1e-9 + 2 * 1e-10;
    expect(seconds).toBeCloseTo((4000 + 8000 + 25600) * perByte + 2 * 1000 * 4 * 1e-6, 15);
    expect(exchanges).toBe(0);
  });

  test('by hand: overheads', () => {
    const layer = { ...LAYER, generated: { ...LAYER.generated, layerSeconds: 7 } };
    const adapter = { dispatchSeconds: 1, submitSeconds: 0.5, dense: layer };
    const machine = machineOf(2, { adapter, latencySeconds: 10 });
    // 4 dispatches per step; sums of o_proj and down_proj; embedding, logits and tokens travel besides.
    expect(generated('single', 1, work, machine).seconds).toBeCloseTo(0.5 + 7 + 4, 1);
    const tp = generated('tp', 2, work, machine);
    expect(tp.seconds).toBeCloseTo(0.5 + 7 + 2 + 4 + 5 * 10, 1);
    expect(tp).toMatchObject({ exchanges: 5, exchangeSeconds: 50 });
  });

  test('tp shares everything, sp the cache alone', () => {
    const one = generated('single', 1, work).seconds;
    expect(generated('tp', 2, work).seconds).toBeCloseTo(one / 2, 12);
    expect(generated('tp', 4, work).seconds).toBeCloseTo(one / 4, 12);
    const cache = 4096 * 4 * 1e-6;
    expect(generated('sp', 4, work).seconds).toBeCloseTo(one - cache * (3 / 4), 12);
    expect(generated('tp+sp', 4, work).seconds).toBeCloseTo(
      (one - cache - 25600e-9 * 1.1) / 2 + (cache + 25600e-9 * 1.1) / 4,
      12,
    );
    // One chunk is one rank's.
    expect(generated('sp', 4, work, machineOf(4), 1, 256).seconds).toBe(
      generated('single', 1, work, machineOf(1), 1, 256).seconds,
    );
  });

  test('sequences’ offsets share out chunks that one sequence leaves uneven', () => {
    const attention = (slots: number) =>
      generated('sp', 2, work, machineOf(2), slots, 256).seconds -
      generated('sp', 2, work, machineOf(2), slots, 0).seconds;
    expect(attention(1)).toBeCloseTo(256 * 4 * 1e-6, 12);
    expect(attention(4)).toBeCloseTo(2 * 256 * 4 * 1e-6, 12);
  });

  test('by hand: token shards the sequences, the root has the weights to itself', () => {
    const perByte = 1e-9 + 5 * 1e-10;
    const weights = (4000 + 8000 + 25600) * perByte;
    const attended = (sequences: number) => sequences * 4096 * 4 * 1e-6;
    // Half a share for the root: of five sequences one, and two for each of the others.
    const token = generated('token', 3, work, machineOf(3), 5);
    expect(token.seconds).toBeCloseTo(weights + attended(2), 12);
    // A root's heads, with those who keep them.
    const roots = generated('tp x token', 4, work, machineOf(4), 3).seconds;
    expect(roots).toBeCloseTo((37600 * (1e-9 + 3e-10)) / 2 + attended(2) / 2, 12);
    // Queries there and outputs back: 2 rows of 8 heads of 64 and 4 kv heads' new keys and values, in f32.
    const slow = generated('token', 3, work, machineOf(3, { bytesPerSecond: 1 }), 5);
    const queries = 2 * (8 * 64 * 4 + 4 * 2 * 64 * 4);
    const outputs = 2 * (2 * 8 * 64 * 4);
    expect(slow).toMatchObject({ exchanges: 3, exchangeSeconds: queries + outputs + 5 * 12 });
  });

  test('by hand: of two batches a root computes one while others attend for the other', () => {
    const two = (machine = machineOf(3)) =>
      generatedStep(makePlan('token', 3, shape), work, machine, 20, 256, 2).seconds;
    // Ten rows each: of ten sequences the root has two, the others four.
    const root = 37600 * (1e-9 + 10e-10) + 2 * 256 * 4e-6;
    const keeper = 4 * 256 * 4e-6;
    expect(two()).toBeCloseTo(2 * Math.max(root, keeper), 12);
    // Slow links: a batch waits for its own last step.
    const one = (machine: ReturnType<typeof machineOf>) =>
      generatedStep(makePlan('token', 3, shape), work, machine, 10, 256, 1).seconds;
    const slow = machineOf(3, { latencySeconds: 1 });
    expect(two(slow)).toBeCloseTo(one(slow), 12);
  });

  test('by hand: adp shards sequences and their rows, and cuts the MLP', () => {
    const perByte = (rows: number) => 1e-9 + rows * 1e-10;
    const adp = generated('adp', 2, work, machineOf(2), 6);
    // Three rows each, but for the MLP: half of it, for all six.
    const expected = (4000 + 25600) * perByte(3) + 4000 * perByte(6) + 3 * 4096 * 4 * 1e-6;
    expect(adp.seconds).toBeCloseTo(expected, 12);
    expect(adp.exchanges).toBe(2);
    const slow = generated('adp', 2, work, machineOf(2, { bytesPerSecond: 1 }), 6);
    expect(slow.exchangeSeconds).toBe(3 * 1024 + 3 * 1024);
    // A rank whose sequence it isn't helps with the MLP.
    const one = generated('adp', 2, work, machineOf(2), 1);
    expect(one.seconds).toBeCloseTo((4000 + 25600) * perByte(1) + 4000 * perByte(1) + 4096 * 4 * 1e-6, 12);
  });

  test('the slowest rank counts', () => {
    const machine = machineOf(2);
    const [fast] = machine.ranks;
    const slow = { ...fast!, dense: { ...LAYER, generated: { ...LAYER.generated, attention: 3e-6 } } };
    const even = generated('sp', 2, work, machine).seconds;
    const uneven = generated('sp', 2, work, { ...machine, ranks: [fast!, slow] }).seconds;
    expect(uneven - even).toBeCloseTo((2 * 4096 * 4 * 1e-6) / 2, 12);
  });

  test('stages take turns', () => {
    const layers = workOf(gqaShape(2, { numLayers: 4 }));
    const one = generated('single', 1, layers);
    const free = generated('pp', 4, layers);
    expect(free.seconds).toBeCloseTo(one.seconds, 12);
    expect(free.exchanges).toBe(4);
  });

  test('stages with a batch each work side by side, as far as the machine lets them', () => {
    const layers = workOf(gqaShape(2, { numLayers: 4, vocabSize: 32 }));
    const row = (policy: string, ranks: number, slots: number, machine = machineOf(ranks)) =>
      generated(policy, ranks, layers, machine, slots, 1024).seconds;
    const one = row('single', 1, 1);
    // Four batches of one row for four stages: each advances while the others do.
    expect(row('pp', 4, 4)).toBeCloseTo(one, 2);
    expect(row('pp', 2, 4)).toBeLessThan(row('single', 1, 4));
    // Two stages that share one device gain nothing.
    const shared = machineOf(2, { slowdown: (n) => n });
    expect(row('pp', 2, 2, shared)).toBeGreaterThanOrEqual(2 * one * 0.99);
  });

  test('stages on the same ranks work one after the other', () => {
    const model = workOf(gqaShape(4, { numLayers: 4, vocabSize: 32 }));
    const tp = makePlan('tp', 2, model.shape);
    const [stage] = tp.stages;
    const apart: Plan = { ...tp, stages: range(0, 4).map((layer) => ({ ...stage!, layers: [layer, layer + 1] })) };
    for (const length of [300, 1100, 4000]) {
      const times = [tp, apart].map((plan) => promptTime(plan, model, machineOf(2), length, 512).seconds);
      expect(times[1]).toBeCloseTo(times[0]!, 12);
      const steps = [tp, apart].map((plan) => generatedStep(plan, model, machineOf(2), 4, length).seconds);
      expect(steps[1]).toBeCloseTo(steps[0]!, 12);
    }
  });

  test('experts: a token’s may all lie on one rank', () => {
    const experts = (ranks: number, policy: string) => {
      const moe = workOf({ ...mlaShape(16), numExperts: 8 });
      const dense = {
        ...moe,
        sizes: { ...moe.sizes, layers: moe.sizes.layers.map((layer) => ({ ...layer, expert: 0 })) },
      };
      return generated(policy, ranks, moe).seconds - generated(policy, ranks, dense).seconds;
    };
    const all = experts(1, 'single');
    const busiest = experts(2, 'ep');
    expect(busiest).toBeGreaterThan(all / 2);
    expect(busiest).toBeLessThan(all);
    expect(experts(2, 'sp')).toBeCloseTo(all, 12);
  });

  test('ranks that share one device never win', () => {
    fc.assert(
      fc.property(
        anyShape,
        fc.constantFrom(...POLICIES),
        fc.integer({ min: 2, max: 8 }),
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 9000 }),
        (model, policy, ranks, slots, length) => {
          let plan: Plan;
          try {
            plan = makePlan(policy, ranks, model);
          } catch {
            return;
          }
          const of = workOf(model);
          const machine = machineOf(ranks, { slowdown: (n) => n, adapter: { dispatchSeconds: 1e-5 } });
          const one = makePlan('single', 1, model);
          expect(generatedStep(plan, of, machine, slots, length).seconds).toBeGreaterThan(
            generatedStep(one, of, machine, slots, length).seconds * (1 - 1e-9),
          );
          // Where rows are split, a step has as many more of them: one rank is given as many.
          expect(promptTime(plan, of, machine, length, 512).seconds).toBeGreaterThan(
            promptTime(one, of, machine, length, 512 * ranks).seconds * (1 - 1e-9),
          );
        },
      ),
      { numRuns: 200 },
    );
  });

  test('on separate devices with free links more of them never lose', () => {
    fc.assert(
      fc.property(anyShape, fc.constantFrom(...POLICIES), fc.integer({ min: 2, max: 8 }), (model, policy, ranks) => {
        let plan: Plan;
        try {
          plan = makePlan(policy, ranks, model);
        } catch {
          return;
        }
        const of = workOf(model);
        const one = makePlan('single', 1, model);
        const machine = machineOf(ranks);
        // A pipeline's batches each read the head, which may outweigh the rest.
        const slots = policy.startsWith('pp') ? 1 : 2;
        expect(generatedStep(plan, of, machine, slots, 4096).seconds).toBeLessThanOrEqual(
          generatedStep(one, of, machine, slots, 4096).seconds * (1 + 1e-9),
        );
      }),
      { numRuns: 200 },
    );
  });
});

describe('a prompt', () => {
  test('by hand', () => {
    const rows = 300;
    const perByte = 1e-9 + rows * 1e-11;
    const attended = (rows * (rows + 1)) / 2;
    expect(prompt('single', 1, work, rows)).toBeCloseTo(12000 * perByte + attended * 4 * 1e-7 + 25600 * 1.1e-9, 12);
  });

  test('in chunks: the weights are read again, the attention is the same', () => {
    const whole = prompt('single', 1, work, 1000, 1000);
    expect(prompt('single', 1, work, 1000, 250) - whole).toBeCloseTo(3 * 12000 * 1e-9, 12);
  });

  test('a pipeline’s stages work on chunks that follow each other', () => {
    const layers = workOf(gqaShape(2, { numLayers: 4, vocabSize: 32 }));
    const time = (ranks: number, length: number, machine = machineOf(ranks)) =>
      prompt(ranks === 1 ? 'single' : 'pp', ranks, layers, length, 256, machine);
    expect(time(2, 256)).toBeCloseTo(time(1, 256), 6);
    // Of n chunks, n + 1 turns of half the work each.
    expect(time(2, 2048) / time(1, 2048)).toBeLessThan(0.65);
    expect(time(2, 2048) / time(1, 2048)).toBeGreaterThan(0.5);
    expect(time(2, 2048, machineOf(2, { slowdown: (n) => n }))).toBeGreaterThan(time(1, 2048) * 0.99);
  });

  test('a rank that has few of the rows disturbs the other for as long as it works', () => {
    const adapter = { dense: { ...LAYER, prompt: { ...LAYER.prompt, secondsPerByte: 0, attention: 0 } } };
    const layers = workOf(gqaShape(2, { vocabSize: 32 }));
    const shared = machineOf(2, { adapter, slowdown: (n) => n });
    const time = (length: number, machine = machineOf(2, { adapter })) => prompt('sp', 2, layers, length, 512, machine);
    // 64 rows are one rank's; of 300 the other has 44, which it runs while the first runs 256.
    expect(time(64, shared) / time(64)).toBeCloseTo(1, 1);
    expect(time(300, shared) / time(300)).toBeCloseTo((256 + 44) / 256, 1);
    expect(time(512, shared) / time(512)).toBeCloseTo(2, 1);
  });

  test('each step is waited for, and the token at last', () => {
    const waiting = machineOf(2, { adapter: { waitSeconds: 100 } });
    const waits = (policy: string, length: number) => Math.round(prompt(policy, 2, work, length, 256, waiting) / 100);
    expect(waits('tp', 256)).toBe(2);
    expect(waits('tp', 1024)).toBe(5);
    // Replicas that split the rows take twice as many at once.
    expect(waits('sp', 1024)).toBe(3);
    expect(waits('sp', 1025)).toBe(4);
  });

  test('several prompts follow each other, or run on a rank each', () => {
    const time = (policy: string, ranks: number, prompts: number) =>
      promptTime(makePlan(policy, ranks, shape), work, machineOf(ranks), 300, 512, prompts).seconds;
    expect(time('tp', 2, 5)).toBeCloseTo(5 * time('tp', 2, 1), 12);
    // Rounds of two, two and one; a prompt's rank has its rows of the MLP halved, and the other's rows of its own half.
    const rows = (count: number) => 1e-9 + count * 1e-11;
    const round = (prompts: number) =>
      4000 * rows(300) + 4000 * rows(300 * prompts) + ((300 * 301) / 2) * 4 * 1e-7 + 25600 * 1.1e-9;
    expect(time('adp', 2, 5)).toBeCloseTo(2 * round(2) + round(1), 12);
    // The root runs all rows; the prompt's attention is another rank's.
    expect(time('token', 3, 1)).toBeCloseTo(time('single', 1, 1), 12);
  });

  test('replicas share a long prompt’s rows and cache, but not a short one’s', () => {
    const layers = workOf(gqaShape(4));
    const ratio = (length: number) =>
      prompt('sp', 2, layers, length, length) / prompt('single', 1, layers, length, length);
    expect(ratio(256)).toBeCloseTo(1, 6);
    expect(ratio(8192)).toBeLessThan(0.6);
  });
});
