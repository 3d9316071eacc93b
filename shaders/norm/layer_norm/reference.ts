import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { LayerNormProblem } from './index.js';

/** Float64, straight from the equation. Elements that the kernel leaves alone are not compared in `out`. */
export function layerNormReference(
  { rows, width, stride, eps, residual, bias, ofSum }: LayerNormProblem,
  inputs: HostArrays,
): { out: number[] } {
  const before = inputs['out'];
  const out = before ? Array.from(before) : new Array<number>(rows * stride);
  for (let r = 0; r < rows; r++) {
    const at = r * stride;
    const row = Array.from(inputs['x']!.subarray(at, at + width)).map(
      (value, i) => value + (ofSum ? before![at + i]! : 0),
    );
    const mean = row.reduce((sum, value) => sum + value, 0) / width;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width;
    row.forEach((value, i) => {
      const y = ((value - mean) / Math.sqrt(variance + eps)) * inputs['weight']![i]! + (bias ? inputs['bias']![i]! : 0);
      out[at + i] = residual ? before![at + i]! + y : y;
    });
    if (!residual) for (let i = width; i % 4 !== 0; i++) out[at + i] = 0;
  }
  return { out };
}
