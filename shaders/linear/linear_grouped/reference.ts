import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { packedLayout } from '../pack.js';
import { tileValues } from '../testing/kept_tiles.js';
import type { LinearGroupedProblem } from './index.js';

/** Float64, straight from the equation; elements of out that no output goes to are left undefined. */
export function linearGroupedReference(problem: LinearGroupedProblem, inputs: HostArrays): Expected {
  const { rows, groups, inFeatures, outFeatures, type, xStride, xOffset, xGroupStride } = problem;
  const { outStride, outOffset, outGroupStride } = problem;
  const { weight, scale } = inputs as Record<string, Uint32Array<ArrayBuffer>>;
  const layout = packedLayout(type, outFeatures, inFeatures);
  const out = new Array<number>(rows * outStride);
  for (let group = 0; group < groups; group++) {
    const slice = (array: Uint32Array<ArrayBuffer>, words: number) => array.slice(group * words, (group + 1) * words);
    const packed = {
      weight: slice(weight!, layout.weightBytes / 4),
      scale: scale && slice(scale, layout.scaleBytes / 4),
    };
    const w = tileValues(type, packed, outFeatures, inFeatures);
    for (let row = 0; row < rows; row++) {
      const x = inputs['x']!.subarray(row * xStride + xOffset + group * xGroupStride);
      for (let n = 0; n < outFeatures; n++) {
        let sum = 0;
        for (let k = 0; k < inFeatures; k++) sum += w[n * inFeatures + k]! * x[k]!;
        out[row * outStride + outOffset + group * outGroupStride + n] = sum;
      }
    }
  }
  return { out };
}
