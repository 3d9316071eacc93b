import type { HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { tileValues } from '../linear/testing/kept_tiles.js';
import { expertLayout, type ExpertProblem } from './experts.js';

/**
 * Float64, straight from the equation: out[row][slot] = W[expert] x, for `stepRows` rows; what isn't written stays as it was.
 * @param ids expert of each (row, slot).
 */
export function expertReference(
  problem: ExpertProblem,
  ids: ArrayLike<number>,
  stepRows: number,
  { x, weight, scale, bias, out }: HostArrays,
): number[] {
  const {
    topK,
    experts,
    inFeatures,
    outFeatures,
    type,
    epilogue,
    xStride,
    xPerSlot,
    outStride,
    expertFirst = 0,
    biasFirst = 0,
  } = problem;
  const count = problem.expertCount ?? experts - expertFirst;
  const expertRows = expertLayout(problem).tiles * 32;
  const packed = { weight: weight as Uint32Array<ArrayBuffer>, scale: scale as Uint32Array<ArrayBuffer> | undefined };
  const w = tileValues(type, packed, count * expertRows, inFeatures);
  const result = Array.from(out!);
  for (let pair = 0; pair < stepRows * topK; pair++) {
    const expert = ids[pair]! - expertFirst;
    if (expert < 0 || expert >= count) continue;
    const xStart = (xPerSlot ? pair : Math.floor(pair / topK)) * xStride;
    const dot = (row: number): number => {
      let sum = 0;
      for (let k = 0; k < inFeatures; k++) sum += w[(expert * expertRows + row) * inFeatures + k]! * x![xStart + k]!;
      const own = problem.rowBias ? pair : biasFirst + expert;
      const at = epilogue === 'gate' ? 2 * own : epilogue === 'up' ? 2 * own + 1 : own;
      return sum + (problem.bias ? bias![at * expertRows + row]! : 0);
    };
    const { alpha = 1, limit = Infinity } = problem.clamped ?? {};
    const activated = (gate: number, up: number): number => {
      if (problem.activation === 'gelu_tanh')
        return 0.5 * gate * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (gate + 0.044715 * gate ** 3))) * up;
      const g = Math.min(gate, limit);
      const u = Math.max(-limit, Math.min(limit, up)) + (problem.clamped ? 1 : 0);
      return (g / (1 + Math.exp(-alpha * g))) * u;
    };
    for (let n = 0; n < outFeatures; n++) {
      const value = dot(n);
      const at = pair * outStride + n;
      if (epilogue === 'swiglu') result[at] = activated(value, dot(expertRows / 2 + n));
      else result[at] = epilogue === 'up' ? activated(out![at]!, value) : value;
    }
  }
  return result;
}
