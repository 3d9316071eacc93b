import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { GatedNormProblem } from './index.js';

/** Float64, straight from the equation. */
export function gatedNormReference(problem: GatedNormProblem, inputs: HostArrays): Expected {
  const { rows, heads, width, stride, gateStride, gateOffset, eps } = problem;
  const x = Float64Array.from(inputs['x']!);
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < heads; head++) {
      const own = x.subarray(row * stride + head * width, row * stride + (head + 1) * width);
      const scale = 1 / Math.sqrt(own.reduce((sum, value) => sum + value * value, 0) / width + eps);
      own.forEach((value, i) => {
        const gate = inputs['gate']![row * gateStride + gateOffset + head * width + i]!;
        own[i] = (value * scale * inputs['weight']![i]! * gate) / (1 + Math.exp(-gate));
      });
    }
  }
  return { x };
}
