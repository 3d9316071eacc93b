import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { PLACES, rowInfoOf } from '../fixture.js';
import type { CausalConvProblem } from './index.js';

/** Float64, straight from the equation; also what the state becomes. */
export function causalConvReference(problem: CausalConvProblem, inputs: HostArrays): Expected {
  const { rows, oneRun, width, taps, gated, bias = false, xStride, outStride } = problem;
  const [x, weight] = [inputs['x']!, inputs['weight']!];
  const state = Float64Array.from(inputs['state']!);
  const out = Array.from(inputs['out']!);
  for (const { slot, start, count, first } of rowInfoOf(rows, oneRun).runs) {
    for (let c = 0; c < width; c++) {
      const kept = (j: number): number => (PLACES[slot]! * (taps - 1) + j) * width + c;
      const u: number[] = Array.from({ length: taps - 1 }, (_, j) => (start === 0 ? 0 : state[kept(j)]!));
      for (let row = first; row < first + count; row++) {
        const at = row * xStride + c;
        u.push(gated ? x[at]! * x[at + 2 * width]! : x[at]!);
        const y = u
          .slice(-taps)
          .reduce((sum, value, j) => sum + weight[c * taps + j]! * value, bias ? inputs['bias']![c]! : 0);
        out[row * outStride + c] = gated ? x[at + width]! * y : y / (1 + Math.exp(-y));
      }
      u.slice(1 - taps).forEach((value, j) => (state[kept(j)] = value));
    }
  }
  return { out, state };
}
