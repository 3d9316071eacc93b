import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { ReduceSegmentsProblem } from './index.js';

/** Float64, straight from the equation; padding of out rows is left undefined. */
export function reference(problem: ReduceSegmentsProblem, inputs: HostArrays): Expected {
  const { rows, outFeatures, inStride, outStride, outOffset = 0 } = problem;
  const parts = problem.begins?.length ?? problem.segmentCount;
  const out = Array.from<number>({ length: rows * outStride });
  for (let row = 0; row < rows; row++) {
    for (let n = 0; n < outFeatures; n++) {
      const at = row * outStride + outOffset + n;
      let sum = 0;
      for (let s = 0; s < parts; s++) sum += inputs['segments']![(s * rows + row) * inStride + n]!;
      if (problem.bias) sum += inputs['bias']![n]!;
      out[at] = problem.epilogue === 'residual' ? inputs['out']![at]! + sum : sum;
    }
  }
  return { out };
}
