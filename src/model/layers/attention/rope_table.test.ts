import { describe, expect, it } from 'vitest';
import type { RopeScaling } from '../../config/rope_config.js';
import { ropeFrequencies, ropeTable } from './rope_table.js';

const llama3 = { type: 'llama3', factor: 32, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 8192 } as const;

const yarn = {
  type: 'yarn',
  factor: 40,
  originalMaxPositions: 4096,
  betaFast: 32,
  betaSlow: 1,
  mscaleAllDim: 0,
  attentionFactor: 1.5,
} as const;
const longrope: RopeScaling = {
  type: 'longrope',
  shortFactor: [1, 1, 2, 4],
  longFactor: [2, 5, 10, 20],
  originalMaxPositions: 1024,
  attentionFactor: 1.25,
};

describe('rope frequencies', () => {
  it('are powers of theta', () => {
    // theta = 10^4, head_dim 8: 10^0, 10^-1, 10^-2, 10^-3.
    const frequencies = ropeFrequencies({ theta: 1e4, scaling: null, dims: 8 }, 100);
    [1, 0.1, 0.01, 0.001].forEach((expected, i) => expect(frequencies[i]).toBeCloseTo(expected, 15));
  });

  it('are divided by a linear factor', () => {
    const frequencies = ropeFrequencies({ theta: 1e4, scaling: { type: 'linear', factor: 4 }, dims: 8 }, 100);
    [0.25, 0.025, 0.0025, 0.00025].forEach((expected, i) => expect(frequencies[i]).toBeCloseTo(expected, 15));
  });

  it('follow Llama 3.2: short waves as they are, long waves stretched, a blend between', () => {
    const plain = ropeFrequencies({ theta: 5e5, scaling: null, dims: 64 }, 100);
    const scaled = ropeFrequencies({ theta: 5e5, scaling: llama3, dims: 64 }, 100);
    // 8192 f / 2pi turns in the trained context: more than 4 up to i = 14, fewer than 1 from i = 18 on.
    for (let i = 0; i < 32; i++) {
      if (i <= 14) expect(scaled[i]).toBe(plain[i]);
      if (i >= 18) expect(scaled[i]).toBe(plain[i]! / 32);
    }
    // By transformers' formula in Python floats: f(15) = 2.1311195e-3 (2.77855 turns, smooth 0.592849), f(17) = 9.3847387e-4
    // (1.22358 turns, smooth 0.0745266); (1 - smooth) f / 32 + smooth f.
    expect(scaled[15]! / 1.2905479282092638e-3).toBeCloseTo(1, 12);
    expect(scaled[17]! / 9.708287802627676e-5).toBeCloseTo(1, 12);
  });

  it('follow DeepSeek: a ramp between the frequencies that make 32 turns and one turn', () => {
    // 4096 positions, theta 10^4, 8 dims: 8 ln(4096 / (32 2pi)) / (2 ln 10^4) = 1.309, and 2.814 for one turn: the ramp goes from
    // index 1 to index 3, half way at 2: 0.01 (0.5 + 0.5 / 40).
    const frequencies = ropeFrequencies({ theta: 1e4, scaling: yarn, dims: 8 }, 100);
    [1, 0.1, 0.005125, 0.000025].forEach((expected, i) => expect(frequencies[i]).toBeCloseTo(expected, 15));
  });

  it('are divided by the long list only where more than the trained context is allocated', () => {
    const config = { theta: 1e4, scaling: longrope, dims: 8 };
    [1, 0.1, 0.005, 0.00025].forEach((expected, i) =>
      expect(ropeFrequencies(config, 1024)[i]).toBeCloseTo(expected, 15),
    );
    [0.5, 0.02, 0.001, 0.00005].forEach((expected, i) =>
      expect(ropeFrequencies(config, 1025)[i]).toBeCloseTo(expected, 15),
    );
  });
});

describe('ropeTable', () => {
  it('holds (cos, sin) of position times frequency', () => {
    const table = ropeTable({ theta: 100, scaling: null, dims: 4 }, 3);
    // Frequencies 1 and 0.1; cos and sin of 0, 0, 1, 0.1, 2, 0.2 from a table of functions.
    const expected = [
      [1, 0, 1, 0],
      [0.5403023059, 0.8414709848, 0.9950041653, 0.0998334166],
      [-0.4161468365, 0.9092974268, 0.9800665778, 0.1986693308],
    ].flat();
    expect(table).toHaveLength(expected.length);
    expected.forEach((value, i) => expect(table[i]).toBeCloseTo(value, 7));
  });

  it('keeps its precision far out, where an f32 product would not', () => {
    // 131071 * 0.1 = 13107.1 = 2086 * 2pi + 0.4751966...
    const table = ropeTable({ theta: 1e4, scaling: null, dims: 8 }, 131072);
    const turns = 13107.1 / (2 * Math.PI);
    const rest = (turns - Math.floor(turns)) * 2 * Math.PI;
    expect(table[131071 * 8 + 2]).toBeCloseTo(Math.cos(rest), 6);
    expect(table[131071 * 8 + 3]).toBeCloseTo(Math.sin(rest), 6);
  });

  it('is scaled by the attention factor', () => {
    for (const [scaling, factor] of [
      [yarn, 1.5],
      [longrope, 1.25],
    ] as const) {
      const table = ropeTable({ theta: 1e4, scaling, dims: 8 }, 2);
      expect([...table.subarray(0, 4)]).toEqual([factor, 0, factor, 0]);
      // cos 1 and sin 1.
      expect(table[8]).toBeCloseTo(factor * 0.5403023059, 6);
      expect(table[9]).toBeCloseTo(factor * 0.8414709848, 6);
    }
  });
});
