import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS } from '../../cache/kv_cache.js';
import type { MergeCase } from './cases.js';

/** o / l of the union of a row's partials, without lanes: sum exp(m_i - m) o_i / sum exp(m_i - m) l_i. */
export function attentionMergeReference(problem: MergeCase, inputs: HostArrays): Expected {
  const { rows, heads, headDim, partials, outStride, positions } = problem;
  const o = inputs['partial_o']!;
  const ml = inputs['partial_ml']!;
  const out = new Array<number>(rows * outStride);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    const count = Math.min(partials, Math.floor(position / CHUNK_TOKENS) + 1);
    for (let head = 0; head < heads; head++) {
      const base = (row * heads + head) * partials;
      const used = Array.from({ length: count }, (_, i) => base + i).filter((at) => ml[at * 2 + 1]! > 0);
      const m = used.reduce((max, at) => Math.max(max, ml[at * 2]!), -Infinity);
      const weights = used.map((at) => Math.exp(ml[at * 2]! - m));
      const l = used.reduce((sum, at, i) => sum + weights[i]! * ml[at * 2 + 1]!, 0);
      for (let dim = 0; dim < headDim; dim++) {
        const sum = used.reduce((total, at, i) => total + weights[i]! * o[at * headDim + dim]!, 0);
        out[row * outStride + head * headDim + dim] = l === 0 ? 0 : sum / l;
      }
    }
  }
  return { out };
}
