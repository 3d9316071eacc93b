import { expect, test } from 'vitest';
import { Random } from '../../../base/random.js';
import { tokenLogprobs } from './logprobs.js';

test('the log-softmax in float64, the likeliest first', () => {
  const logits = new Random(1).normals(1000, 4);
  const weights = [...logits].map((logit) => Math.exp(logit));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const expected = weights.map((weight) => Math.log(weight / total));
  const order = [...expected.keys()].sort((a, b) => expected[b]! - expected[a]!);
  const { logprob, top } = tokenLogprobs(logits, 17, 20);
  expect(logprob).toBeCloseTo(expected[17]!, 12);
  expect(top.map(({ id }) => id)).toEqual(order.slice(0, 20));
  for (const { id, logprob: each } of top) expect(each).toBeCloseTo(expected[id]!, 12);
  expect(tokenLogprobs(logits, 17, 0).top).toEqual([]);
});

test('equal logits: the lower id first; more asked for than there are', () => {
  const { top } = tokenLogprobs(new Float32Array([0, 2, 1, 2]), 0, 3);
  expect(top.map(({ id }) => id)).toEqual([1, 3, 2]);
  expect(tokenLogprobs(new Float32Array([1, 2]), 0, 20).top).toHaveLength(2);
});

test('large logits and infinities give finite numbers', () => {
  const { logprob, top } = tokenLogprobs(new Float32Array([Infinity, -Infinity, NaN, 3e38, 1000]), 0, 2);
  expect(top.map(({ id }) => id)).toEqual([0, 3]);
  expect(logprob).toBeCloseTo(Math.log(0.5), 6);
  expect(tokenLogprobs(new Float32Array([-Infinity, 0]), 0, 0).logprob).toBeLessThan(-1e29);
});
