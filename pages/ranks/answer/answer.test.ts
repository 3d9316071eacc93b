import { describe, expect, test } from 'vitest';
import type { PlanReport, RunStats } from '../../../src/index.js';
import { ARRANGED, makePlan, POLICIES } from '../../../src/placement/index.js';
import { gqaShape } from '../../../src/placement/testing/shapes.js';
import { measuredOf, type MeasuredPlan, MeasuredPlans, medianRun } from './measured_plans.js';
import { planNote } from './plan_notes.js';
import { comparisonOf, fastestPlan, impossiblePlans, planRows, type Running } from './plan_rows.js';
import { type Comparison, verdict, whatToAdd } from './verdict.js';

const MIB = 2 ** 20;
const of = (weights: number, cache: number) => ({ weightBytes: weights * MIB, kvBytes: cache * MIB });
const issue: Comparison = {
  ranks: 2,
  gpus: 2,
  software: false,
  plan: 'tp',
  one: { tokensPerSecond: 58, measured: true },
  many: { tokensPerSecond: 34, measured: false },
  besides: { ms: 42, ofMs: 49 },
  held: { one: of(4, 16), many: of(2, 8) },
};

describe('the verdict', () => {
  test.each<[string, Partial<Comparison>, string]>([
    [
      'one is faster',
      { many: { tokensPerSecond: 34, measured: true } },
      'Two GPUs (tp) make 34 tokens/s, one makes 58, measured: one is 1.7 times as fast here, because 42 of 49 ms a token go to ' +
        'exchanging and waiting. Two hold a model twice as large: 2.0 MiB each instead of 4.0 MiB.',
    ],
    [
      'several are faster, in part predicted',
      {
        one: { tokensPerSecond: 30, measured: true },
        many: { tokensPerSecond: 57, measured: false },
        ranks: 4,
        gpus: 4,
      },
      'Four GPUs (tp) make 57 tokens/s (predicted), one makes 30 (measured): four are 1.9 times as fast here, though 42 of 49 ms a ' +
        'token go to exchanging and waiting. Four hold a model twice as large: 2.0 MiB each instead of 4.0 MiB.',
    ],
    [
      'alike, and nothing is known of the rest',
      {
        one: { tokensPerSecond: 100, measured: false },
        many: { tokensPerSecond: 103, measured: false },
        besides: undefined,
        held: undefined,
      },
      'Two GPUs (tp) make 103 tokens/s, one makes 100, predicted: they are equally fast here.',
    ],
    [
      'virtual ranks, a longer context',
      { gpus: 1, plan: 'sp', held: { one: of(4, 16), many: of(4, 8) }, besides: { ms: 0.52, ofMs: 4 } },
      'Two ranks on one GPU (sp) make 34 tokens/s (predicted), one makes 58 (measured): one is 1.7 times as fast here, because they ' +
        'share it, and 0.5 of 4.0 ms a token go to exchanging and waiting. On GPUs of their own two would hold a context twice as ' +
        'long: 8.0 MiB each instead of 16 MiB of cache.',
    ],
    [
      'the CPU, no memory gained',
      { gpus: 1, software: true, besides: undefined, held: { one: of(4, 16), many: of(4, 16) } },
      'Two ranks on the CPU (tp) make 34 tokens/s (predicted), one makes 58 (measured): one is 1.7 times as fast here, because they ' +
        'share it. On GPUs of their own two would hold no larger a model: each has all of it.',
    ],
  ])('%s', (_what, changes, expected) => {
    expect(verdict({ ...issue, ...changes })).toBe(expected);
  });

  test('one GPU: what could be added; two: nothing', () => {
    expect(whatToAdd(1, false)).toContain('What could be added: a second GPU.');
    expect(whatToAdd(1, true)).toContain('share the CPU');
    expect(whatToAdd(2, false)).toBe('');
  });
});

test('every policy has a sentence and a link; another has none', () => {
  for (const policy of [...POLICIES, ...ARRANGED]) {
    const note = planNote(policy);
    expect(note?.text, policy).toMatch(/^[A-Z].*\.$/);
    expect(note?.url, policy).toMatch(/\/docs\/\w+\.md(#plans)?$/);
  }
  expect(planNote('mine')).toBeUndefined();
  expect(planNote('pp x mine')).toBeUndefined();
});

const stats = (speed: number, ranks: number): RunStats =>
  ({
    tokens_per_second: speed,
    ttft_ms: 5,
    ranks: Array.from({ length: ranks }, (_, rank) => ({
      compute_ms_per_token: 1000 / speed - 3 - rank,
      exchange_ms_per_token: 1,
      wait_ms_per_token: 2 + rank,
    })),
  }) as unknown as RunStats;
const run = (plan: string, ranks: number, speed: number, runs = 3): MeasuredPlan =>
  measuredOf(plan, stats(speed, ranks), runs);

describe('what was measured', () => {
  const memory = (): Pick<Storage, 'getItem' | 'setItem'> & { text: string | null } => ({
    text: null,
    getItem() {
      return this.text;
    },
    setItem(_, text) {
      this.text = text;
    },
  });

  test('the median is the run in the middle', () => {
    const [slow, middle, fast] = [stats(1, 1), stats(2, 1), stats(9, 1)];
    expect(medianRun([fast, slow, middle])).toBe(middle);
  });

  test('is kept for the next page, and an answer never takes the place of runs in turns', () => {
    const storage = memory();
    const first = new MeasuredPlans('a model', storage);
    first.add(run('tp', 2, 10));
    first.add(run('tp', 2, 99, 1));
    first.add(run('auto', 1, 20, 1));
    first.add(run('sp', 2, 0));
    const again = new MeasuredPlans('a model', storage);
    expect(again.all().map((plan) => [plan.plan, plan.ranks, plan.tokensPerSecond])).toEqual([
      ['tp', 2, 10],
      ['single', 1, 20],
    ]);
  });

  test('a storage that refuses, or that holds something else, is none', () => {
    const refused = (): never => {
      throw new Error('refused');
    };
    const plans = new MeasuredPlans('a model', { getItem: refused, setItem: refused });
    plans.add(run('tp', 2, 10));
    expect(plans.get('tp', 2)?.tokensPerSecond).toBe(10);
    expect(new MeasuredPlans('x', { getItem: () => '{', setItem: refused }).all()).toEqual([]);
  });
});

describe('plans side by side', () => {
  const predicted = (policy: string, ranks: number, speed: number, refused?: string) => ({
    policy,
    worldSize: ranks,
    plan: makePlan(policy, ranks, gqaShape(4)),
    tokensPerSecond: speed,
    firstTokenSeconds: 1,
    requestSeconds: 100 / speed,
    decode: { seconds: 1 / speed, exchangeSeconds: 0.4 / speed, exchanges: 3 },
    prompt: { seconds: 1, exchangeSeconds: 0, exchanges: 0 },
    memory: Array.from({ length: ranks }, (_, rank) => ({
      rank,
      ...of(4 / ranks, 16 / ranks),
      stateBytes: 0,
      activationBytes: 0,
      totalBytes: 1,
    })),
    ...(refused !== undefined && { refused }),
  });
  const candidates = [
    predicted('single', 1, 50),
    predicted('tp', 2, 20),
    predicted('pp', 2, 40),
    predicted('sp', 2, 60, 'rank 0 has no room'),
    { policy: 'pp x tp', worldSize: 2, refused: 'no stages' },
  ] as PlanReport['candidates'];
  const nothing = (): MeasuredPlans => new MeasuredPlans('x', { getItem: () => null, setItem: () => {} });
  const one: Running = { plan: 'single', ranks: 1, held: [of(4, 16)], gpus: 1, software: false };
  const two: Running = { plan: 'tp', ranks: 2, held: [of(2.1, 8), of(2, 8)], gpus: 2, software: false };

  test('one rank first, then the fastest; those that no plan is of are named apart', () => {
    const measured = nothing();
    measured.add(run('tp', 2, 70));
    measured.add(run('arranged', 2, 10));
    const rows = planRows(candidates, measured, two, 2);
    expect(rows.map((row) => [row.plan, row.predicted, row.measured, row.current])).toEqual([
      ['single', 50, undefined, false],
      ['tp', 20, 70, true],
      ['pp', 40, undefined, false],
      ['arranged', undefined, 10, false],
      ['sp', undefined, undefined, false],
    ]);
    expect(rows.at(-1)!.refused).toBe('rank 0 has no room');
    expect(impossiblePlans(candidates, 2)).toEqual(['pp x tp']);
    expect(fastestPlan(candidates, 2)).toBe('pp');
    expect(fastestPlan(candidates, 3)).toBeUndefined();
  });

  test('what runs on several is compared with one; one with the fastest that ran, else that is predicted', () => {
    const measured = nothing();
    expect(comparisonOf(candidates, measured, two, 2, 1)).toMatchObject({
      plan: 'tp',
      gpus: 2,
      one: { tokensPerSecond: 50, measured: false },
      many: { tokensPerSecond: 20, measured: false },
      besides: { ms: 20, ofMs: 50 },
      held: { one: of(4, 16), many: of(2.1, 8) },
    });
    expect(comparisonOf(candidates, measured, one, 2, 1)).toMatchObject({ plan: 'pp', gpus: 1 });
    measured.add(run('tp', 2, 25));
    measured.add(run('single', 1, 50));
    const compared = comparisonOf(candidates, measured, one, 2, 1)!;
    expect(compared).toMatchObject({ plan: 'tp', many: { tokensPerSecond: 25, measured: true } });
    // Of the two ranks the one that waits longer.
    expect(compared.besides).toEqual({ ms: 4, ofMs: 40 });
  });

  test('without a prediction what was measured is compared all the same, and nothing is said before', () => {
    const measured = nothing();
    expect(comparisonOf([], measured, two, 2, 2)).toBeUndefined();
    measured.add(run('tp', 2, 25));
    expect(comparisonOf([], measured, two, 2, 2)).toBeUndefined();
    measured.add(run('single', 1, 50));
    expect(comparisonOf([], measured, two, 2, 2)).toMatchObject({ plan: 'tp', held: undefined });
  });
});
