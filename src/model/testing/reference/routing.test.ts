import { describe, expect, it } from 'vitest';
import type { ExpertsConfig } from '../../config/model_config.js';
import { routeReference } from './routing.js';

const base: ExpertsConfig = {
  kind: 'experts',
  numExperts: 4,
  expertsPerToken: 2,
  width: 8,
  sharedWidth: 0,
  activation: 'silu',
  numGroups: 1,
  topkGroups: 1,
  scoring: 'softmax',
  method: 'greedy',
  normTopkProb: false,
  routedScalingFactor: 1,
  correctionBias: false,
};
const logs = (...shares: number[]) => Float64Array.from(shares, Math.log);
const logits = (...scores: number[]) => Float64Array.from(scores, (p) => Math.log(p / (1 - p)));
const close = (...values: number[]) => values.map((value) => expect.closeTo(value, 12));

describe('DeepSeek V2', () => {
  it('takes the largest of a softmax over all experts', () => {
    // Scores 0.1, 0.4, 0.2, 0.3.
    const routing = routeReference({ ...base, routedScalingFactor: 16 }, logs(1, 4, 2, 3));
    expect(routing.experts).toEqual([1, 3]);
    expect(routing.weights).toEqual(close(6.4, 4.8));
    expect(routing.margin).toBeCloseTo(0.1, 12);
  });

  it('scales normalised weights too', () => {
    const routing = routeReference({ ...base, normTopkProb: true, routedScalingFactor: 7 }, logs(1, 4, 2, 3));
    expect(routing.weights).toEqual(close(4, 3));
  });

  it('compares groups by their best expert', () => {
    const limited: ExpertsConfig = { ...base, method: 'group_limited_greedy', numGroups: 2 };
    // Scores 0.4, 0.1 | 0.3, 0.2: the second group has the larger second, and greedily 0.3 would be chosen.
    const routing = routeReference(limited, logs(4, 1, 3, 2));
    expect(routing.experts).toEqual([0, 1]);
    expect(routing.weights).toEqual(close(0.4, 0.1));
    expect(routing.margin).toBeCloseTo(0.1, 12);
  });
});

describe('DeepSeek V3', () => {
  const v3: ExpertsConfig = {
    ...base,
    scoring: 'sigmoid',
    method: 'noaux_tc',
    numGroups: 2,
    normTopkProb: true,
    correctionBias: true,
  };

  it('compares groups by the sum of their two best, with bias, and weighs without it', () => {
    // With bias 0.5, 0.4 | 0.1, 0.6: sums 0.9 and 0.7, though the best is in the second group.
    const routing = routeReference(v3, logits(0.5, 0.4, 0.6, 0.4), [0, 0, -0.5, 0.2]);
    expect(routing.experts).toEqual([0, 1]);
    expect(routing.weights).toEqual(close(5 / 9, 4 / 9));
    expect(routing.margin).toBeCloseTo(0.2, 12);
  });

  it('chooses by the biased score within the groups', () => {
    // With bias 0.5, 0.4, 0.1, 0.6.
    const open = { ...v3, topkGroups: 2, routedScalingFactor: 2.5 };
    const routing = routeReference(open, logits(0.5, 0.4, 0.6, 0.4), [0, 0, -0.5, 0.2]);
    expect(routing.experts).toEqual([0, 3]);
    expect(routing.weights).toEqual(close((2.5 * 5) / 9, (2.5 * 4) / 9));
    expect(routing.margin).toBeCloseTo(0.1, 12);
  });

  it('never leaves the chosen groups, even for a negative score', () => {
    // With bias 0.5, -0.1 | 0.1, 0.1.
    const routing = routeReference(v3, logits(0.5, 0.2, 0.1, 0.1), [0, -0.3, 0, 0]);
    expect(routing.experts).toEqual([0, 1]);
    expect(routing.weights).toEqual(close(5 / 7, 2 / 7));
  });
});
