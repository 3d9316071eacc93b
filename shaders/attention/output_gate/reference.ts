import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { activations } from '../../linear/reference.js';
import type { OutputGateProblem } from './index.js';

/** Float64, straight from the equation. */
export function outputGateReference(problem: OutputGateProblem, inputs: HostArrays): Expected {
  const { rows, width, stride, gateStride, gateOffset, perRow = false, open = false, by } = problem;
  const x = Float64Array.from(inputs['x']!);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < width; i++) {
      const gate = inputs['gate']![row * gateStride + gateOffset + (perRow ? 0 : i)]!;
      x[row * stride + i]! *= by ? activations[by](gate) : open ? gate : 1 / (1 + Math.exp(-gate));
    }
  }
  return { x };
}
