import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { ScaleHeadsProblem } from './index.js';

/** Float64, straight from the equation. */
export function scaleHeadsReference(problem: ScaleHeadsProblem, inputs: HostArrays): { x: Float64Array } {
  const { rows, segments, squaresStride, width, kStart, stride, qTotal, kTotal, eps } = problem;
  const x = Float64Array.from(inputs['x']!);
  for (let r = 0; r < rows; r++) {
    const squares = [0, 1].map((which) =>
      Array.from({ length: segments }, (_, s) => inputs['squares']![(s * rows + r) * squaresStride + which]!).reduce(
        (sum, one) => sum + one,
      ),
    );
    for (let i = 0; i < width; i++) {
      const mean = i < kStart ? squares[0]! / qTotal : squares[1]! / kTotal;
      x[r * stride + i] = (x[r * stride + i]! / Math.sqrt(mean + eps)) * inputs['weight']![i]!;
    }
  }
  return { x };
}
