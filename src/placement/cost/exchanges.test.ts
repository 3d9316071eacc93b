import { describe, expect, test } from 'vitest';
import { makePlan } from '../make/make_plan.js';
import type { ModelShape } from '../plan.js';
import { gqaShape, mlaShape } from '../testing/shapes.js';
import { machineOf, workOf } from '../testing/machine.js';
import { type PredictedExchange, secondsOfExchange, layerExchanges, type MlpKind, stepExchanges } from './exchanges.js';
import { stageSteps } from './step_rows.js';
import { type StepRows, generatedRows, promptRows } from './step_rows.js';

const exchangesOf = (policy: string, ranks: number, shape: ModelShape, step: StepRows, mlp: MlpKind = 'gated') => {
  const plan = makePlan(policy, ranks, shape);
  const stages = stageSteps(plan, step);
  const work = workOf(shape);
  return { layer: layerExchanges(stages[0]!, work, mlp), step: stepExchanges(stages, work, 1).flat() };
};
const labels = (exchanges: readonly PredictedExchange[]) => exchanges.map(({ label }) => label);
/** Bytes that rank `to` gets in an exchange. */
const received = (exchanges: readonly PredictedExchange[], label: string, to: number) =>
  exchanges
    .find((exchange) => exchange.label === label)!
    .messages.filter((message) => message.to === to)
    .map(({ from, bytes }) => [from, bytes]);

const one = generatedRows(1, 4096);
const gqa = gqaShape(4);
const moe = { ...mlaShape(16), numExperts: 8 };

describe('exchanges of a layer, generated rows', () => {
  test.each([
    ['single', 1, []],
    ['tp', 4, ['o_proj', 'down_proj']],
    ['sp', 4, ['partials']],
    ['tp+sp', 4, ['partials', 'o_proj', 'down_proj']],
    ['tp+sp', 2, ['queries', 'partials', 'o_proj', 'down_proj']],
    ['pp', 2, []],
  ])('%s on %i', (policy, ranks, expected) => {
    expect(labels(exchangesOf(policy, ranks, gqa, one).layer)).toEqual(expected);
  });

  test('experts travel with the down projection', () => {
    expect(labels(exchangesOf('tp', 2, moe, one, 'shared experts').layer)).toEqual([
      'queries',
      'partials',
      'o_proj',
      'experts',
    ]);
    expect(labels(exchangesOf('tp', 2, moe, one).layer)).toEqual(['queries', 'partials', 'o_proj', 'down_proj']);
    expect(labels(exchangesOf('ep', 2, moe, one, 'shared experts').layer)).toEqual(['partials', 'experts']);
    expect(labels(exchangesOf('ep', 2, moe, one).layer)).toEqual(['partials']);
    expect(labels(exchangesOf('sp', 2, moe, one, 'shared experts').layer)).toEqual(['partials']);
  });

  test('bytes, by hand', () => {
    // 256 wide: a row is 1024 bytes. 4 kv heads with 2 query heads of 64 each.
    const tp = exchangesOf('tp', 2, gqa, one).layer;
    expect(received(tp, 'o_proj', 0)).toEqual([[1, 1024]]);
    expect(received(tp, 'down_proj', 1)).toEqual([[0, 1024]]);
    const sp = exchangesOf('sp', 4, gqa, one).layer;
    // 8 query heads, a state of 2 lanes each.
    expect(received(sp, 'partials', 3)).toEqual([0, 1, 2].map((from) => [from, 8 * 66 * 4]));
    const grid = exchangesOf('tp+sp', 4, gqa, one).layer;
    expect(received(grid, 'partials', 2)).toEqual([[3, 4 * 66 * 4]]);
    expect(received(grid, 'o_proj', 2)).toEqual([[0, 1024]]);
    const hybrid = exchangesOf('tp+sp', 2, gqa, one).layer;
    expect(received(hybrid, 'queries', 0)).toEqual([[1, 4 * 64 * 4 + 2 * 2 * 64 * 4]]);
    expect(received(hybrid, 'partials', 0)).toEqual([[1, 4 * 66 * 4]]);
    const mla = exchangesOf('tp', 4, moe, generatedRows(3, 300), 'shared experts').layer;
    // 300 tokens reach two lanes: one per rank at most. 3 rows of 16 heads over 4 groups.
    expect(received(mla, 'queries', 0)).toEqual([1, 2, 3].map((from) => [from, 3 * 4 * 128 * 4]));
    expect(received(mla, 'partials', 0)).toEqual([1, 2, 3].map((from) => [from, 3 * 4 * 130 * 4]));
    // The sum of two segments of the shared experts, and the outputs of two experts.
    expect(received(mla, 'experts', 0)).toEqual([1, 2, 3].map((from) => [from, (1 + 2) * 3 * 1024]));
  });
});

describe('prompt rows', () => {
  test('replicas split rows by the owner of their chunk, so queries travel', () => {
    const { layer, step } = exchangesOf('sp', 2, gqa, promptRows(0, 512));
    expect(labels(layer)).toEqual(['queries', 'partials']);
    expect(received(layer, 'queries', 0)).toEqual([[1, 256 * (8 * 64 * 4 + 4 * 2 * 64 * 4)]]);
    expect(received(layer, 'partials', 0)).toEqual([[1, 256 * 8 * 66 * 4]]);
    expect(labels(step)).toEqual(['last row', 'tokens']);
  });

  test('not where experts are spread or every rank attends for all', () => {
    expect(labels(exchangesOf('ep', 2, moe, promptRows(0, 512), 'shared experts').layer)).toEqual([
      'partials',
      'experts',
    ]);
    const hybrid = exchangesOf('tp+sp', 2, gqa, promptRows(0, 512)).layer;
    expect(received(hybrid, 'queries', 0)).toEqual([[1, 512 * (4 * 64 * 4 + 2 * 2 * 64 * 4)]]);
  });
});

describe('exchanges of a step', () => {
  test.each([
    ['single', 1, []],
    ['tp', 2, ['embedding', 'candidates', 'tokens']],
    ['sp', 2, ['tokens']],
    ['pp', 3, ['stage', 'stage', 'tokens']],
    ['pp x tp', 4, ['embedding', 'stage', 'candidates', 'tokens']],
  ])('%s on %i', (policy, ranks, expected) => {
    expect(labels(exchangesOf(policy, ranks, gqa, one).step)).toEqual(expected);
  });

  test('bytes, by hand', () => {
    const { step } = exchangesOf('pp x tp', 4, gqa, generatedRows(2, 100));
    expect(received(step, 'embedding', 1)).toEqual([[0, 2 * 1024]]);
    expect(received(step, 'stage', 3)).toEqual([[1, 2 * 1024]]);
    expect(received(step, 'candidates', 2)).toEqual([[3, 8]]);
    // A token, its position and its slot.
    expect(received(step, 'tokens', 0)).toEqual([[2, 12]]);
  });
});

test('an exchange takes the longest latency and its bytes one after another, on the rank that waits longest', () => {
  const machine = machineOf(3, { latencySeconds: 1, bytesPerSecond: 10 });
  const links = machine.links.map((row) => [...row]);
  links[0]![2] = { latencySeconds: 3, bytesPerSecond: 5 };
  const messages = [
    { from: 1, to: 0, bytes: 20 },
    { from: 2, to: 0, bytes: 20 },
    { from: 0, to: 1, bytes: 30 },
  ];
  expect(secondsOfExchange({ ...machine, links }, { label: 'test', messages })).toBe(3 + 2 + 4);
  // Three ranks at once wait longer than two.
  expect(secondsOfExchange({ ...machine, links, crowding: [1, 1, 2] }, { label: 'test', messages })).toBe(
    2 * 3 + 2 + 4,
  );
});
