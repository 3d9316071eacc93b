import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { segmentRange, segmentStart } from '../segments.js';
import { type LowRankProblem, NO_PLACE } from './index.js';

/** Float64, straight from the equations; what isn't written is left undefined. */
export function reference(problem: LowRankProblem, inputs: HostArrays): Expected {
  const { rows, part, outFeatures, segments, modelInFeatures, xStride, xOffset = 0, outStride, bias } = problem;
  const { total, first = 0, count = total - first } = segments;
  const [x, factors, table] = [inputs['x']!, inputs['factors']!, inputs['table']!];
  const { start: base, end } = segmentRange(modelInFeatures, segments);
  const out = Array.from<number>({ length: count * rows * outStride });
  for (let s = 0; s < count; s++) {
    const [start, last] = [first + s, first + s + 1].map((at) => segmentStart(at, modelInFeatures, segments) - base);
    for (let row = 0; row < rows; row++) {
      const place = inputs['places']![inputs['row_info']![2 * row + 1]!] ?? NO_PLACE;
      const [a = 0, b = 0, width = 0, rank = 0] = table.slice(4 * place, 4 * place + 4);
      const piece = s * rows + row;
      for (let n = 0; n < (part === 'down' ? width : outFeatures); n++) {
        const at = piece * outStride + n;
        let sum = 0;
        if (part === 'down') {
          for (let k = start!; k < last!; k++)
            sum += factors[a + n * (end - base) + k]! * x[row * xStride + xOffset + k]!;
        } else {
          for (let j = 0; width > 0 && j < rank; j++)
            sum += factors[b + (1 + j) * outFeatures + n]! * x[piece * xStride + factors[b + n]! + j]!;
          sum += part === 'add' ? inputs['out']![at]! : bias ? inputs['bias']![n]! : 0;
        }
        out[at] = sum;
      }
    }
  }
  return { out };
}
