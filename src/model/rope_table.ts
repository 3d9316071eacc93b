import type { RopeConfig } from './rope_config.js';

/**
 * Rotary angular frequencies [headDim / 2], radians a position, in float64: theta^(-2i/headDim), then stretched as transformers'
 * modeling_rope_utils does. `linear` divides all of them; `llama3` divides those whose wavelength exceeds the trained context,
 * leaves the short ones, and blends in between.
 */
export function ropeFrequencies({ ropeTheta, ropeScaling, headDim }: RopeConfig & { headDim: number }): Float64Array {
  const frequencies = new Float64Array(headDim / 2);
  for (let i = 0; i < frequencies.length; i++) {
    const frequency = ropeTheta ** ((-2 * i) / headDim);
    frequencies[i] = ropeScaling === null ? frequency : scaleFrequency(frequency, ropeScaling);
  }
  return frequencies;
}

function scaleFrequency(frequency: number, scaling: NonNullable<RopeConfig['ropeScaling']>): number {
  if (scaling.type === 'linear') return frequency / scaling.factor;
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
  /** How many turns this frequency makes in the trained context. */
  const turns = (originalMaxPositions * frequency) / (2 * Math.PI);
  if (turns < lowFreqFactor) return frequency / factor;
  if (turns > highFreqFactor) return frequency;
  const smooth = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

/**
 * (cos, sin) of every rotation, [positions][headDim / 2][2], computed in float64 and rounded once to f32. Entry i turns the pair
 * (x[i], x[i + headDim / 2]) of a head.
 */
export function ropeTable(config: RopeConfig & { headDim: number }, positions: number): Float32Array<ArrayBuffer> {
  const frequencies = ropeFrequencies(config);
  const table = new Float32Array(positions * frequencies.length * 2);
  let at = 0;
  for (let position = 0; position < positions; position++) {
    for (const frequency of frequencies) {
      table[at++] = Math.cos(position * frequency);
      table[at++] = Math.sin(position * frequency);
    }
  }
  return table;
}
