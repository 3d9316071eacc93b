import { expect, test } from 'vitest';
import { SplitkvError } from '../../src/base/errors.js';
import { SAMPLING_PARAMS_BYTES, type SamplingValues, writeSamplingParams } from './params.js';

const write = (values: SamplingValues): DataView => {
  const view = new DataView(new ArrayBuffer(16 + SAMPLING_PARAMS_BYTES));
  writeSamplingParams(view, 16, values);
  return view;
};

test('writes every field where the kernels read it, and nothing before the offset', () => {
  const seed = 0xfedc_ba98_7654_3210n;
  const view = write({ temperature: 0.5, topK: 40, topP: 0.25, repetitionPenalty: 2, seed, counter: 6, active: true });
  expect(new Uint32Array(view.buffer)).toEqual(
    Uint32Array.of(0, 0, 0, 0, 0x3f000000, 40, 0x3e800000, 0x40000000, 0x76543210, 0xfedcba98, 6, 1),
  );
});

test('defaults are greedy, everything off, active', () => {
  expect(new Uint32Array(write({}).buffer, 16)).toEqual(Uint32Array.of(0, 0, 0x3f800000, 0x3f800000, 0, 0, 0, 1));
});

test('a seed may be a number or a bigint', () => {
  expect(write({ seed: 2 ** 40 + 7 }).buffer).toEqual(write({ seed: 2n ** 40n + 7n }).buffer);
});

test.each<[SamplingValues, string]>([
  [{ temperature: -0.1 }, 'temperature -0.1: use 0 (greedy)'],
  [{ temperature: Number.NaN }, 'temperature NaN'],
  [{ temperature: Number.POSITIVE_INFINITY }, 'temperature Infinity'],
  [{ topP: 0 }, 'top_p 0: use a number above 0 and at most 1'],
  [{ topP: 1.0001 }, 'top_p 1.0001'],
  [{ topP: Number.NaN }, 'top_p NaN'],
  [{ topP: 1e-60 }, 'top_p 1e-60'],
  [{ topK: -1 }, 'top_k -1: use 0 (off)'],
  [{ topK: 2.5 }, 'top_k 2.5'],
  [{ repetitionPenalty: 0 }, 'repetition_penalty 0: use a positive number'],
  [{ repetitionPenalty: Number.NaN }, 'repetition_penalty NaN'],
  [{ seed: -1 }, 'seed -1: use an integer from 0'],
  [{ seed: 0.5 }, 'seed 0.5'],
  [{ seed: 1n << 64n }, 'seed 18446744073709551616'],
])('refuses %o', (values, message) => {
  expect(() => write(values)).toThrow(message);
  expect(() => write(values)).toThrow(SplitkvError);
});
