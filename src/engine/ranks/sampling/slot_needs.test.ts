import { expect, test } from 'vitest';
import { type SamplingMode, SlotNeeds, samplingMode } from './sampling.js';

test.each<[Parameters<typeof samplingMode>[0], SamplingMode]>([
  [{}, 'greedy'],
  [{ topK: 0, topP: 0.5 }, 'greedy'],
  [{ temperature: 9e-6, topK: 1000 }, 'greedy'],
  [{ temperature: 1e-5 }, 'whole'],
  [{ temperature: 1, topK: 1 }, 'top-k'],
  [{ temperature: 1, topK: 64, topP: 0.5 }, 'top-k'],
  [{ temperature: 1, topK: 65 }, 'whole'],
  [{ temperature: 1, topK: 0, topP: 0.5 }, 'whole'],
  [{ temperature: 1, topK: 40, minP: 0.1 }, 'whole'],
  [{ temperature: 0, minP: 0.1 }, 'greedy'],
  [{ temperature: 1, topK: 40, frequencyPenalty: 1, logitBias: { 3: 1 } }, 'top-k'],
])('%o needs %s', (options, mode) => {
  expect(samplingMode(options)).toBe(mode);
});

test('a batch needs what its most demanding slot needs, until that one ends', () => {
  const needs = new SlotNeeds();
  expect([needs.mode, needs.penalises]).toEqual(['greedy', false]);
  needs.set(3, { temperature: 1, topK: 40 });
  needs.set(1, { repetitionPenalty: 1.1 });
  expect([needs.mode, needs.penalises]).toEqual(['top-k', true]);
  needs.set(0, { temperature: 1 });
  expect(needs.mode).toBe('whole');
  needs.delete(1);
  expect([needs.mode, needs.penalises]).toEqual(['whole', false]);
  needs.delete(0);
  expect(needs.mode).toBe('top-k');
  needs.set(3, {});
  expect(needs.mode).toBe('greedy');
});

test.each<[Parameters<typeof samplingMode>[0], boolean]>([
  [{ temperature: 1, topK: 4, topP: 0.5, repetitionPenalty: 2, stopTokenIds: [3] }, false],
  [{ minP: 0, frequencyPenalty: 0, presencePenalty: 0, minTokens: 0, logitBias: {} }, false],
  [{ minP: 0.5 }, false],
  [{ minP: 0.5, temperature: 1 }, true],
  [{ frequencyPenalty: -1 }, true],
  [{ presencePenalty: 1 }, true],
  [{ minTokens: 1 }, true],
  [{ logitBias: { 3: 0 } }, true],
  [{ logitBias: new Map([[3, 1]]) }, true],
])('%o: a batch with it searches other logits than those that were computed: %s', (options, controls) => {
  const needs = new SlotNeeds();
  needs.set(2, {});
  needs.set(1, options);
  expect(needs.controls).toBe(controls);
  needs.delete(1);
  expect(needs.controls).toBe(false);
});
