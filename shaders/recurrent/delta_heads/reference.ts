import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { type DeltaHeadsProblem, L2_EPS } from './index.js';

/** Float64, straight from the equation. */
export function deltaHeadsReference(problem: DeltaHeadsProblem, host: HostArrays): Expected {
  const { rows, keyHeads, ratio, keyDim, plain = false, stride, inputStride, bOffset } = problem;
  const [inputs, rates, bias] = [host['inputs']!, host['rates']!, host['dt_bias']!];
  const qkv = Float64Array.from(host['qkv']!);
  const valueHeads = keyHeads * ratio;
  const gates: number[] = [];
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < (plain ? 0 : 2 * keyHeads); head++) {
      const own = qkv.subarray(row * stride + head * keyDim, row * stride + (head + 1) * keyDim);
      const length = Math.sqrt(own.reduce((sum, value) => sum + value * value, 0) + L2_EPS);
      const scale = head < keyHeads ? keyDim ** -0.5 : 1;
      own.forEach((value, i) => (own[i] = (value / length) * scale));
    }
    for (let head = 0; head < valueHeads; head++) {
      const b = inputs[row * inputStride + bOffset + head]!;
      const a = inputs[row * inputStride + bOffset + (plain ? 0 : valueHeads) + head]! + bias[head]!;
      const softplus = Math.max(a, 0) + Math.log1p(Math.exp(-Math.abs(a)));
      gates.push(Math.exp(-rates[head]! * softplus), plain ? softplus : 1 / (1 + Math.exp(-b)));
    }
  }
  return { qkv, gates };
}
