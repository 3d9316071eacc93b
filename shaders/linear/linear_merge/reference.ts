import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { MergeCase } from '../../attention/attention_merge/cases.js';
import { attentionMergeReference } from '../../attention/attention_merge/reference.js';
import { linearReference } from '../reference.js';
import type { LinearMergeProblem } from './index.js';

export interface MergedCase extends LinearMergeProblem {
  /** Of the row. */
  readonly position: number;
}

/** The same of linear alone. */
export const linearProblem = (problem: MergedCase) => ({
  ...problem,
  rows: 1,
  tileRows: 1 as const,
  norm: false,
  xStride: alignUp(problem.inFeatures, 32),
});

/** The same of attention_merge alone. */
export const mergeProblem = ({ inFeatures, headDim, partials, position }: MergedCase): MergeCase => ({
  rows: 1,
  heads: inFeatures / headDim,
  headDim,
  partials,
  outStride: alignUp(inFeatures, 32),
  positions: [position],
});

/** attention_merge, then the matrix. */
export function linearMergeReference(problem: MergedCase, inputs: HostArrays): Expected {
  const merge = mergeProblem(problem);
  const { out } = attentionMergeReference(merge, inputs);
  const x = Float64Array.from({ length: merge.outStride }, (_, i) => out![i] ?? 0);
  return linearReference(linearProblem(problem), { ...inputs, x: x as unknown as Float32Array<ArrayBuffer> });
}
