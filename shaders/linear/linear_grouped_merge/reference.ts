import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { MergeCase } from '../../attention/attention_merge/cases.js';
import { attentionMergeReference } from '../../attention/attention_merge/reference.js';
import type { LinearGroupedProblem } from '../linear_grouped/index.js';
import { linearGroupedReference } from '../linear_grouped/reference.js';
import type { LinearGroupedMergeProblem } from './index.js';

export interface GroupedMergeCase extends LinearGroupedMergeProblem {
  /** Of the row. */
  readonly position: number;
}

/** The same of attention_merge alone. */
export const mergeProblem = ({ groups, inFeatures, partials, position }: GroupedMergeCase): MergeCase => ({
  rows: 1,
  heads: groups,
  headDim: inFeatures,
  partials,
  outStride: alignUp(groups * inFeatures, 32),
  positions: [position],
});

/** The same of linear_grouped alone. */
export const groupedProblem = (problem: GroupedMergeCase): LinearGroupedProblem => ({
  ...problem,
  rows: 1,
  tileRows: 1,
  xStride: alignUp(problem.groups * problem.inFeatures, 32),
  xOffset: 0,
  xGroupStride: problem.inFeatures,
  outOffset: 0,
});

/** attention_merge, then a matrix a head. */
export function linearGroupedMergeReference(problem: GroupedMergeCase, inputs: HostArrays): Expected {
  const { out } = attentionMergeReference(mergeProblem(problem), inputs);
  return linearGroupedReference(groupedProblem(problem), { ...inputs, x: Float64Array.from(out!) as never });
}
