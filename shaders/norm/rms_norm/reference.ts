import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { RmsNormProblem } from './index.js';

/** Float64, straight from the equation. Elements that the kernel leaves alone are not compared in `out`. */
export function rmsNormReference(
  { rows: all, pieces = 1, width, stride, eps, residual, apart = false, scaled = false }: RmsNormProblem,
  inputs: HostArrays,
): { out: number[] } {
  const rows = all * pieces;
  const x = inputs['x']!;
  const before = inputs['base'] ?? inputs['out'];
  const inPlace = residual && !apart;
  const out = inPlace ? Array.from(before!) : new Array<number>(rows * stride);
  for (let r = 0; r < rows; r++) {
    const at = r * stride;
    let sum = 0;
    for (let i = 0; i < width; i++) sum += x[at + i]! ** 2;
    for (let i = 0; i < width; i++) {
      const y = (x[at + i]! / Math.sqrt(sum / width + eps)) * inputs['weight']![i]!;
      out[at + i] = residual ? (before![at + i]! + y) * (scaled ? inputs['weight']![width]! : 1) : y;
    }
    if (!inPlace) for (let i = width; i % 4 !== 0; i++) out[at + i] = 0;
  }
  return { out };
}
