import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { arrange, type HeadCosts, toArrangementFile } from '../arrangement/index.js';
import { type PlanCandidate, type PlanPrediction, headCosts, pickPlan, predictPlan, predictPlans } from './planner.js';
import { arrangedPlan } from './make/arranged_plan.js';
import { makePlan } from './make/make_plan.js';
import type { Plan } from './plan.js';
import { explainPick, formatPlanTable } from './plan/describe_plan.js';
import { rootShareOf } from './sequences/sequence_weights.js';
import { LAYER, machineOf, workOf } from './testing/machine.js';
import { gqaShape, mlaShape } from './testing/shapes.js';

const work = workOf(gqaShape(4, { numLayers: 24, hiddenSize: 896, columns: 4864, vocabSize: 32000 }));
const workload = { contextLength: 4096, promptLength: 512, promptChunk: 512 };
const find = (candidates: readonly PlanCandidate[], policy: string, worldSize: number) =>
  candidates.find((candidate) => candidate.policy === policy && candidate.worldSize === worldSize)!;
const rows = (layers: number, heads: readonly number[]): number[][] => Array.from({ length: layers }, () => [...heads]);
const code = (run: () => unknown): string | undefined => {
  try {
    run();
  } catch (error) {
    return error instanceof SplitkvError ? error.code : String(error);
  }
  return undefined;
};

describe('predictPlans', () => {
  test('every policy on every number of ranks, once', () => {
    const names = predictPlans(work, machineOf(4), workload).map(({ policy, worldSize }) => `${policy} ${worldSize}`);
    expect(names).toEqual([
      'single 1',
      ...['tp', 'sp', 'tp+sp', 'pp', 'pp x tp', 'pp x sp', 'pp x tp+sp'].map((policy) => `${policy} 2`),
      ...['tp', 'sp', 'tp+sp', 'pp', 'pp x tp', 'pp x sp', 'pp x tp+sp'].map((policy) => `${policy} 3`),
      ...['tp', 'sp', 'tp+sp', 'pp', 'pp x tp', 'pp x sp', 'pp x tp+sp'].map((policy) => `${policy} 4`),
    ]);
  });

  test('tp on more ranks than kv heads: a quarter of what sp holds whole, for the same exchanges and one more a layer', () => {
    const few = workOf(gqaShape(1, { numLayers: 24, hiddenSize: 896, columns: 4864, vocabSize: 32000 }));
    const candidates = predictPlans(few, machineOf(4), workload);
    const [tp, sp] = ['tp', 'sp'].map((policy) => find(candidates, policy, 4) as PlanPrediction);
    const held = ({ memory }: PlanPrediction): number => Math.max(...memory.map(({ weightBytes }) => weightBytes));
    expect(held(tp!)).toBeLessThan(0.27 * held(sp!));
    // Partials and down_proj of each layer; the embedding, candidates and tokens.
    expect([tp!.decode.exchanges, sp!.decode.exchanges]).toEqual([24 * 2 + 3, 24 + 1]);
    expect(tp!.decode.seconds - tp!.decode.exchangeSeconds).toBeLessThan(
      sp!.decode.seconds - sp!.decode.exchangeSeconds,
    );
  });

  test('with several requests also plans that keep whole sequences on ranks', () => {
    const many = { ...workload, batch: 16 };
    const candidates = predictPlans(work, machineOf(4), many);
    const names = candidates.filter(({ worldSize }) => worldSize === 4).map(({ policy }) => policy);
    expect(names).toEqual(expect.arrayContaining(['token', 'tp x token', 'pp x token', 'adp']));
    // On ranks of equal links the weights count, which tp cuts everywhere and token nowhere.
    const seconds = (policy: string) => (find(candidates, policy, 4) as PlanPrediction).decode.seconds;
    expect(seconds('tp')).toBeLessThan(seconds('tp x token'));
    expect(seconds('tp x token')).toBeLessThan(seconds('token'));
    expect(seconds('token')).toBeLessThan((find(candidates, 'single', 1) as PlanPrediction).decode.seconds);
    // A batch takes all of its prompts.
    const { requestSeconds, firstTokenSeconds, decode } = find(candidates, 'tp', 4) as PlanPrediction;
    expect(requestSeconds).toBeCloseTo(16 * firstTokenSeconds + 128 * decode.seconds, 9);
  });

  test('with a KV budget, attention counts what heads keep, and their arrangement is a plan like the others', () => {
    const short = workOf(gqaShape(4, { numLayers: 6, hiddenSize: 896, columns: 4864, vocabSize: 32000 }));
    const { shape } = short;
    // The first two heads keep nearly all.
    const kept = rows(6, [500, 500, 30, 30]);
    const arrangedBy =
      (copies: number) =>
      (ranks: number, costs: HeadCosts): Plan =>
        arrangedPlan(
          toArrangementFile('m', ranks, arrange({ loads: kept, ranks, mode: 'exact', batch: 8, copies, costs })),
          shape,
          'sequences',
        );
    const many = { ...workload, batch: 8, newTokens: 2, kept };
    const slow = machineOf(4, {
      adapter: { dense: { ...LAYER, generated: { ...LAYER.generated, attention: 1e-4 } } },
    });
    const candidates = predictPlans(short, slow, { ...many, arranged: arrangedBy(3) });
    const seconds = (policy: string, ranks: number) =>
      (find(candidates, policy, ranks) as PlanPrediction).decode.seconds;
    const whole = (
      find(predictPlans(short, slow, { ...many, kept: rows(6, [512, 512, 512, 512]) }), 'tp', 2) as PlanPrediction
    ).decode.seconds;
    // Heads in order: both heavy ones on the first rank.
    const attention = (entries: number): number => 6 * 8 * entries * 1e-4;
    expect(whole - seconds('tp', 2)).toBeCloseTo(attention(1024 - 1000), 6);
    expect(seconds('tp', 2) - seconds('arranged', 2)).toBeCloseTo(attention(1002 - 532), 2);
    expect(seconds('arranged', 4)).toBeLessThan(0.6 * seconds('tp', 4));
    // Of plans that keep all requests on the same ranks, and whole heads.
    const together = candidates.filter(({ policy }) => !/token|adp|sp/.test(policy));
    expect(pickPlan(together)).toMatchObject({ policy: 'arranged', worldSize: 4 });
    // As heads in order, on as many ranks as heads and without copies: listed once.
    const without = predictPlans(short, slow, { ...many, arranged: arrangedBy(0) });
    expect(without.filter(({ worldSize }) => worldSize === 4).map(({ policy }) => policy)).not.toContain('arranged');
  });

  test('what a copy costs beside its requests decides whether there are any', () => {
    const dear = { ...LAYER, generated: { ...LAYER.generated, secondsPerByte: 1, attention: 1e-6 } };
    const costs = headCosts(work, machineOf(2, { adapter: { dense: dear } }), 2, { batch: 4 });
    expect(costs.secondsPerHead[0]).toBeGreaterThan(1000 * costs.secondsPerEntry[0]!);
    const problem = { loads: [[90, 30, 30, 30]], ranks: 2, mode: 'exact', batch: 4 } as const;
    expect(arrange({ ...problem, costs }).copies).toBe(0);
    const cheap = headCosts(
      work,
      machineOf(2, {
        adapter: { dense: { ...dear, generated: { ...dear.generated, secondsPerByte: 0, secondsPerByteRow: 0 } } },
      }),
      2,
      {},
    );
    expect(arrange({ ...problem, loads: [[90, 30, 30, 40]], costs: cheap }).copies).toBeGreaterThan(0);
    expect(headCosts(work, machineOf(2, { adapter: { budgetBytes: 1e12 } }), 2, {}).memoryBytes).toHaveLength(2);
  });

  test("a token plan's root keeps as many sequences as its other work leaves it time for", () => {
    const many = { ...workload, batch: 32, batchesOf: () => 2 };
    const shareWith = (attention: number): number => {
      const generated = { ...LAYER.generated, attention };
      const machine = machineOf(2, { adapter: { dense: { ...LAYER, generated } } });
      const { plan, decode } = find(predictPlans(work, machine, many), 'token', 2) as PlanPrediction;
      const half = predictPlan(makePlan('token', 2, work.shape), work, machine, many);
      expect(decode.seconds).toBeLessThanOrEqual(half.decode.seconds);
      return rootShareOf(plan)!;
    };
    // Attention that is most of a step, and next to none of it.
    expect(shareWith(1e-5)).toBeGreaterThan(0.5);
    expect(shareWith(1e-8)).toBeLessThan(0.5);
  });

  test('plans that come to the same are listed once, experts where there are some', () => {
    const mla = predictPlans(workOf({ ...mlaShape(16), numExperts: 8 }), machineOf(2), workload);
    // On MLA tp+sp is tp.
    expect(mla.map(({ policy }) => policy)).toEqual([
      'single',
      'tp',
      'sp',
      'ep',
      'pp',
      'pp x tp',
      'pp x sp',
      'pp x tp+sp',
      'pp x ep',
    ]);
  });

  test('says why a policy makes no plan', () => {
    const candidates = predictPlans(work, machineOf(3), workload);
    expect(find(candidates, 'pp x tp', 3)).toMatchObject({ refused: expect.stringContaining('use 4, 6') });
    expect(find(candidates, 'pp x tp', 3).plan).toBeUndefined();
    expect(find(candidates, 'pp', 3).plan).toBeDefined();
  });

  test('says which rank has no room, with a prediction all the same', () => {
    const all = predictPlans(work, machineOf(2), workload);
    const single = find(all, 'single', 1) as PlanPrediction;
    const tight = machineOf(2, { adapter: { budgetBytes: single.memory[0]!.totalBytes - 1 } });
    const candidates = predictPlans(work, tight, workload);
    expect(find(candidates, 'single', 1)).toMatchObject({
      refused: expect.stringContaining('rank 0 needs'),
      tokensPerSecond: single.tokensPerSecond,
    });
    expect(find(candidates, 'tp', 2).refused).toBeUndefined();
    expect(pickPlan(candidates).worldSize).toBe(2);
  });

  test('exact bytes replace the estimate', () => {
    const plan = makePlan('tp', 2, work.shape);
    const exact = { weightBytes: [11, 12], activationBytes: [3, 4] };
    const { memory } = predictPlan(plan, work, machineOf(2), { ...workload, bytesOf: () => exact });
    expect(memory.map(({ weightBytes }) => weightBytes)).toEqual([11, 12]);
    for (const { totalBytes, kvBytes, rank } of memory) expect(totalBytes - kvBytes).toBe([14, 16][rank]);
  });

  test('a pipeline balances memory', () => {
    const { plan, memory } = find(predictPlans(work, machineOf(2), workload), 'pp', 2) as PlanPrediction;
    const largest = (layers: number) => {
      const stages = plan.stages.map((stage, i) => ({
        ...stage,
        layers: (i === 0 ? [0, layers] : [layers, 24]) as [number, number],
      }));
      return Math.max(
        ...predictPlan({ ...plan, stages }, work, machineOf(2), workload).memory.map(({ totalBytes }) => totalBytes),
      );
    };
    const cuts = Array.from({ length: 23 }, (_, i) => largest(i + 1));
    expect(Math.max(...memory.map(({ totalBytes }) => totalBytes))).toBe(Math.min(...cuts));
  });

  test('speed is of all sequences together, halfway through the new tokens; a request is its prompt and those', () => {
    const at = (change: object) =>
      predictPlan(makePlan('single', 1, work.shape), work, machineOf(1), { ...workload, ...change });
    const usual = at({});
    expect(at({ batch: 4 }).tokensPerSecond).toBeGreaterThan(usual.tokensPerSecond);
    expect(at({ promptLength: 100 }).tokensPerSecond).toBeGreaterThan(usual.tokensPerSecond);
    expect(at({ newTokens: 512 }).decode.seconds).toBeGreaterThan(usual.decode.seconds);
    expect(at({ newTokens: 10_000 }).decode).toEqual(at({ newTokens: 20_000 }).decode);
    expect(at({ promptLength: 1024 }).firstTokenSeconds).toBeGreaterThan(usual.firstTokenSeconds);
    expect(usual.requestSeconds).toBeCloseTo(usual.firstTokenSeconds + 128 / usual.tokensPerSecond, 12);
  });

  test('refuses what was not measured', () => {
    const plan = makePlan('tp', 2, work.shape);
    const two = machineOf(2);
    expect(() => predictPlan(plan, work, machineOf(1), workload)).toThrow('measure every rank');
    expect(() => predictPlan(plan, work, { ...two, links: [[], []] }, workload)).toThrow('from rank 1 to rank 0');
    expect(() => predictPlan(plan, work, { ...two, crowding: [1] }, workload)).toThrow('crowding');
    expect(() => predictPlan(plan, work, machineOf(2, { adapter: { dispatchSeconds: NaN } }), workload)).toThrow(
      'is NaN',
    );
    expect(code(() => predictPlan(plan, work, machineOf(1), workload))).toBe('usage');
  });
});

describe('pickPlan', () => {
  const pick = (...args: Parameters<typeof machineOf>) => pickPlan(predictPlans(work, machineOf(...args), workload));

  test('separate devices with fast links: split; slow links, or one device: one rank', () => {
    expect(pick(4, { latencySeconds: 1e-6, bytesPerSecond: 1e11 })).toMatchObject({ policy: 'tp', worldSize: 4 });
    expect(pick(4, { latencySeconds: 0.1, bytesPerSecond: 1e9 })).toMatchObject({ policy: 'single', worldSize: 1 });
    expect(pick(4, { slowdown: (ranks) => ranks })).toMatchObject({ policy: 'single', worldSize: 1 });
  });

  test('a gain too small to trust is no reason for another rank', () => {
    const one = pick(1).requestSeconds;
    const half = predictPlan(makePlan('tp', 2, work.shape), work, machineOf(2), workload);
    const exchanges = half.prompt.exchanges + 128 * half.decode.exchanges;
    // Latency such that two ranks save 4%, then 6%.
    const latency = (gain: number) => (one / (1 + gain) - half.requestSeconds) / exchanges;
    expect(pick(2, { latencySeconds: latency(0.04) }).worldSize).toBe(1);
    expect(pick(2, { latencySeconds: latency(0.06) }).worldSize).toBe(2);
  });

  test('nothing fits: what each needs is told, and the plan that lacks least named', () => {
    const candidates = predictPlans(work, machineOf(2, { adapter: { budgetBytes: 1000 } }), workload);
    expect(code(() => pickPlan(candidates))).toBe('limit');
    expect(() => pickPlan(candidates)).toThrow(
      /^no plan fits; needed on the fullest rank: single 482 MiB, tp on 2 ranks 241 MiB, .*; the nearest: plan 'tp': rank 0 needs 241 MiB/,
    );
  });
});

describe('the table', () => {
  const small = workOf(gqaShape(2, { numLayers: 2, vocabSize: 128 }));
  const table = (latencySeconds: number) => {
    const candidates = predictPlans(small, machineOf(2, { latencySeconds, adapter: { budgetBytes: 1e9 } }), workload);
    const pick = pickPlan(candidates);
    return { text: formatPlanTable(candidates, pick), why: explainPick(candidates, pick) };
  };

  test('one line a plan, the pick marked, reasons last', () => {
    const lines = table(0.01).text.split('\n');
    expect(lines[0]).toMatch(/^ {2}plan +ranks +tokens\/s +first token +request +memory per rank +exchanges +waiting$/);
    expect(lines[1]).toMatch(/^\* single +1 +\d+\.?\d* +[\d.]+ ms +[\d.]+ m?s +[\d.]+ MiB +0 +0%$/);
    expect(lines[2]).toMatch(/^ {2}tp +2 .* 7 +\d+%$/);
    expect(new Set(lines.slice(0, 6).map((line) => line.length)).size).toBe(1);
    expect(lines.slice(6)).toEqual([
      "- plan 'pp x tp' on 2 ranks: they make no 2 stages of 2 ranks or more; use 4, 6, 8, 10, 12, 14 or 16 ranks",
      "- plan 'pp x sp' on 2 ranks: they make no 2 stages of 2 ranks or more; use 4, 6, 8, 10, 12, 14 or 16 ranks",
      "- plan 'pp x tp+sp' on 2 ranks: they make no 2 stages of 2 ranks or more; use 4, 6, 8, 10, 12, 14 or 16 ranks",
    ]);
  });

  test('of policies that fit some number of the ranks, no reasons for the others', () => {
    const lines = formatPlanTable(predictPlans(small, machineOf(3), workload)).split('\n');
    // Two layers, two kv heads: sp fits 2 ranks, and nothing 3.
    expect(lines.filter((line) => line.startsWith('- '))).toEqual([
      expect.stringMatching(/^- plan 'pp x tp' on 3 ranks: /),
      expect.stringMatching(/^- plan 'pp x sp' on 3 ranks: /),
      expect.stringMatching(/^- plan 'pp x tp\+sp' on 3 ranks: /),
    ]);
  });

  test('the reason of the pick', () => {
    expect(table(0.01).why).toMatch(
      /^one rank: a request takes \d+ ms; with the fastest split, pp on 2 ranks, [\d.]+ s: each token waits 20 ms in 2 exchanges$/,
    );
    expect(table(1e-6).why).toMatch(
      /^tp on 2 ranks: a request takes \d+ ms, 1\.\d\d times as fast as on one rank \(\d+ ms\)$/,
    );
  });
});
