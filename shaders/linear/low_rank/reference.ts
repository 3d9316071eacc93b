import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { segmentRange, segmentStart } from '../segments.js';
import { type LowRankProblem, NO_PLACE } from './index.js';

/** Float64, straight from the equations; what isn't written is left undefined. */
export function reference(problem: LowRankProblem, inputs: HostArrays): Expected {
  const { rows, part, outFeatures, segments, modelInFeatures, xStride, xOffset = 0, outStride, bias, groups } = problem;
  if (groups) return grouped(problem, groups, inputs);
  if (problem.experts) return ofExperts(problem, problem.experts, inputs);
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

/** Of each group of a row: A's columns and B's rows are its own, or all groups'. */
function grouped(
  { rows, part, outFeatures, modelInFeatures: inFeatures, xStride, xOffset = 0, outStride }: LowRankProblem,
  { count, stride, shared }: NonNullable<LowRankProblem['groups']>,
  inputs: HostArrays,
): Expected {
  const [x, factors, table] = [inputs['x']!, inputs['factors']!, inputs['table']!];
  const out = part === 'down' ? Array.from<number>({ length: count * rows * outStride }) : [...inputs['out']!];
  for (let row = 0; row < rows; row++) {
    const place = inputs['places']![inputs['row_info']![2 * row + 1]!] ?? NO_PLACE;
    const [a = 0, b = 0, width = 0, rank = 0] = table.slice(4 * place, 4 * place + 4);
    for (let group = 0; group < count; group++) {
      const piece = group * rows + row;
      const columns = shared ? inFeatures : count * inFeatures;
      for (let j = 0; part === 'down' && j < width; j++) {
        const [from, at] = [
          a + j * columns + (shared ? 0 : group * inFeatures),
          row * xStride + xOffset + group * stride,
        ];
        let sum = 0;
        for (let k = 0; k < inFeatures; k++) sum += factors[from + k]! * x[at + k]!;
        out[piece * outStride + j] = sum;
      }
      const outs = shared ? outFeatures : count * outFeatures;
      for (let n = 0; part === 'add' && width > 0 && n < outFeatures; n++) {
        const at = b + (shared ? 0 : group * outFeatures) + n;
        for (let j = 0; j < rank; j++)
          out[row * outStride + group * stride + n]! +=
            factors[at + (1 + j) * outs]! * x[piece * xStride + factors[at]! + j]!;
      }
    }
  }
  return { out };
}

/** Of each (row, slot): by the entry of its expert, if that is here. */
function ofExperts(
  { rows, part, outFeatures, modelInFeatures, xStride, xOffset = 0, outStride, bias }: LowRankProblem,
  { topK, first, count, xPerSlot }: NonNullable<LowRankProblem['experts']>,
  inputs: HostArrays,
): Expected {
  const [x, factors, table] = [inputs['x']!, inputs['factors']!, inputs['table']!];
  const out = Array.from<number>({ length: rows * topK * outStride });
  for (let pair = 0; pair < rows * topK; pair++) {
    const row = Math.floor(pair / topK);
    const place = inputs['places']![inputs['row_info']![2 * row + 1]!] ?? NO_PLACE;
    const expert = inputs['expert_ids']![pair]! - first;
    const isHere = expert >= 0 && expert < count;
    const at = 4 * (place * count + expert);
    const [a = 0, b = 0, width = 0, rank = 0] = isHere ? table.slice(at, at + 4) : [];
    const from = part !== 'down' || xPerSlot ? pair : row;
    for (let n = 0; n < (part === 'down' ? width : outFeatures); n++) {
      let sum = part === 'bias' && bias && isHere ? inputs['bias']![expert * outFeatures + n]! : 0;
      if (part === 'down') {
        for (let k = 0; k < modelInFeatures; k++)
          sum += factors[a + n * modelInFeatures + k]! * x[from * xStride + xOffset + k]!;
      } else {
        for (let j = 0; width > 0 && j < rank; j++)
          sum += factors[b + (1 + j) * outFeatures + n]! * x[from * xStride + factors[b + n]! + j]!;
      }
      out[pair * outStride + n] = sum;
    }
  }
  return { out };
}
