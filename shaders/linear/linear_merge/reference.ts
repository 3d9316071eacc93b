import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { MergeCase } from '../../attention/attention_merge/cases.js';
import { attentionMergeReference } from '../../attention/attention_merge/reference.js';
import type { OutputGateProblem } from '../../attention/output_gate/index.js';
import { outputGateReference } from '../../attention/output_gate/reference.js';
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
export const mergeProblem = ({ inFeatures, headDim, partials, position, slidingWindow }: MergedCase): MergeCase => ({
  rows: 1,
  heads: inFeatures / headDim,
  headDim,
  partials,
  outStride: alignUp(inFeatures, 32),
  positions: [position],
  ...(slidingWindow !== undefined && { slidingWindow }),
});

/** The same of output_gate alone. */
export const gateProblem = ({ inFeatures, gateOffset = 0 }: MergedCase): OutputGateProblem => ({
  rows: 1,
  width: inFeatures,
  stride: alignUp(inFeatures, 32),
  gateStride: gateOffset + inFeatures,
  gateOffset,
});

/** attention_merge, then the gate, then the matrix. */
export function linearMergeReference(problem: MergedCase, inputs: HostArrays): Expected {
  const merge = mergeProblem(problem);
  const { out } = attentionMergeReference(merge, inputs);
  const merged = Float64Array.from({ length: merge.outStride }, (_, i) => out![i] ?? 0);
  const given = { ...inputs, x: merged as unknown as Float32Array<ArrayBuffer> };
  const { x = merged } = problem.gateOffset === undefined ? {} : outputGateReference(gateProblem(problem), given);
  return linearReference(linearProblem(problem), { ...given, x: x as unknown as Float32Array<ArrayBuffer> });
}
