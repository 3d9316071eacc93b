import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { SubsampleProblem } from './index.js';

/** Float64, straight from the equation. */
export function subsampleReference(
  { rows, columns, inputs, channels, countsAt, eps }: SubsampleProblem,
  { x, weight, norm, counts }: HostArrays,
): Expected {
  const lines = counts![countsAt]!;
  const out: number[] = [];
  for (let t = 0; t < rows; t++) {
    for (let f = 0; f < columns; f++) {
      const y = Array.from({ length: channels }, (_, c) => {
        let sum = 0;
        for (let dt = 0; dt < 3; dt++)
          for (let df = 0; df < 3; df++) {
            const [line, column] = [2 * t + dt - 1, 2 * f + df - 1];
            if (line < 0 || line >= lines || column < 0 || column >= 2 * columns) continue;
            for (let i = 0; i < inputs; i++)
              sum += weight![((c * inputs + i) * 3 + dt) * 3 + df]! * x![(line * 2 * columns + column) * inputs + i]!;
          }
        return sum;
      });
      const mean = y.reduce((sum, value) => sum + value, 0) / channels;
      const variance = y.reduce((sum, value) => sum + (value - mean) ** 2, 0) / channels;
      for (const [c, value] of y.entries())
        out.push(Math.max(0, ((value - mean) / Math.sqrt(variance + eps)) * norm![c]!));
    }
  }
  return { out };
}
