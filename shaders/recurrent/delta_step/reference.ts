import { alignUp } from '../../../src/base/math.js';
import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { causalConvReference } from '../causal_conv/reference.js';
import { deltaHeadsReference } from '../delta_heads/reference.js';
import { deltaRuleReference } from '../delta_rule/reference.js';
import { rowInfoOf } from '../fixture.js';
import { gatedNormReference } from '../gated_norm/reference.js';
import type { DeltaStepProblem } from './index.js';

/** What the four kernels that it stands for are asked. */
export function stepProblems({ rows, taps, xStride, outStride, eps, ...shape }: DeltaStepProblem) {
  const heads = shape.keyHeads * shape.ratio;
  const values = heads * shape.valueDim;
  const width = 2 * shape.keyHeads * shape.keyDim + values;
  const stride = alignUp(width, 32);
  const common = { rows, oneRun: false };
  return {
    conv: { ...common, width, taps, gated: false, xStride, outStride: stride },
    heads: { rows, ...shape, stride, inputStride: xStride, bOffset: width + values },
    rule: { ...common, ...shape, stride, outStride },
    norm: { rows, heads, width: shape.valueDim, stride: outStride, gateStride: xStride, gateOffset: width, eps },
  };
}

/** Those of the four kernels, one after another. */
export function deltaStepReference(problem: DeltaStepProblem, inputs: HostArrays): Expected {
  const { conv, heads, rule, norm } = stepProblems(problem);
  const { x, rates, dt_bias, out } = inputs as Record<string, Float32Array>;
  const rounded = ({ state: _, ...arrays }: Expected): HostArrays =>
    Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, Float32Array.from(array)]));
  const mixed = causalConvReference(conv, {
    x: x!,
    weight: inputs['taps']!,
    state: inputs['conv_state']!,
    out: new Float32Array(problem.rows * conv.outStride),
  });
  const normalised = rounded(
    deltaHeadsReference(heads, { inputs: x!, rates: rates!, dt_bias: dt_bias!, qkv: rounded(mixed)['out']! }),
  );
  const attended = deltaRuleReference(rule, { ...normalised, state: inputs['memory']!, out: out! });
  const { x: all } = gatedNormReference(norm, { gate: x!, weight: inputs['norm']!, x: rounded(attended)['out']! });
  const result = Float64Array.from(out!);
  for (const { first, count } of rowInfoOf(problem.rows, false).runs) {
    const [start, end] = [first * problem.outStride, (first + count) * problem.outStride];
    result.set(Array.from(all!).slice(start, end), start);
  }
  return { out: result, conv_state: mixed['state']!, memory: attended['state']! };
}
