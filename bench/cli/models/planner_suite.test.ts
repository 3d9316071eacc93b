import { expect, test } from 'vitest';
import { type PlannerResult, plannerTable, scoreOf } from './planner_suite.js';

const times = (ttft_ms: number, step_ms: number) => ({ ttft_ms, step_ms, request_ms: ttft_ms + 10 * step_ms });
const result = (
  model: string,
  plan: string,
  picked: boolean,
  predicted: PlannerResult['predicted'],
  measured: PlannerResult['measured'],
): PlannerResult => ({
  model,
  prompt_tokens: 64,
  plan,
  ranks: plan === 'single' ? 1 : 2,
  predicted,
  measured,
  picked,
  samples: [measured],
});

const results = [
  // Right by all times.
  result('a', 'single', true, times(100, 10), times(110, 10)),
  result('a', 'tp', false, times(120, 20), times(100, 20)),
  // The pick takes half as long again as the other; its first token comes sooner than predicted.
  result('b', 'single', true, times(100, 10), times(100, 20)),
  result('b', 'tp', false, times(150, 10), times(100, 10)),
];

test('picks are judged by what plans really took', () => {
  expect(scoreOf(results, 'request_ms')).toMatchObject({ choices: 2, good: 1, worst: 1.5 });
  // A tenth slower than the fastest is good enough.
  expect(scoreOf(results, 'ttft_ms')).toMatchObject({ choices: 2, good: 2, worst: 1.1 });
  expect(scoreOf(results, 'step_ms')).toMatchObject({ good: 1, worst: 2 });
});

test('the error is the median over all plans', () => {
  // 100/110, 120/100, 100/100 and 150/100 by the first token.
  expect(scoreOf(results, 'ttft_ms').median_error).toBeCloseTo((0.2 + 1 / 11) / 2, 12);
});

test('the table marks picks and says how many were good', () => {
  const scores = (['request_ms', 'step_ms', 'ttft_ms'] as const).map((by) => scoreOf(results, by));
  const text = plannerTable({ suite: 'planner', environment: {} as never, results, scores });
  expect(text).toMatch(/^\* a +single +1 +64 +200 +210 +10\.0 +10\.0 +100 +110$/m);
  expect(text).toContain('by request: 1 of 2 picks fastest or within a tenth of it, the worst 1.50 times the fastest');
});
