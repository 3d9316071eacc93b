import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { GatedSquaresProblem } from './index.js';

/** Float64, straight from the equation. */
export function gatedSquaresReference(problem: GatedSquaresProblem, inputs: HostArrays) {
  const { rows, headDim, segments, modelWidth, stride, vStride, vOffset, gateStride, gateOffset } = problem;
  const { first, count, total, align } = segments;
  const startOf = (segment: number): number =>
    segment === total ? modelWidth : align * Math.floor(Math.floor((segment * modelWidth) / total) / align);
  const x = Float64Array.from(inputs['x']!);
  const squares = new Array<number>(count * rows * problem.squaresStride);
  for (let r = 0; r < rows; r++) {
    for (let s = 0; s < count; s++) {
      let sum = 0;
      for (let i = startOf(first + s) - startOf(first); i < startOf(first + s + 1) - startOf(first); i++) {
        const gate = inputs['gate']![r * gateStride + gateOffset + i]!;
        const skipped = inputs['skip']![Math.floor(i / headDim)]! * inputs['v']![r * vStride + vOffset + i]!;
        const value = ((x[r * stride + i]! + skipped) * gate) / (1 + Math.exp(-gate));
        x[r * stride + i] = value;
        sum += value * value;
      }
      squares[(s * rows + r) * problem.squaresStride] = sum;
    }
  }
  return { x, squares };
}
