import { alignUp } from '../../src/base/math.js';
import type { Random } from '../../src/base/random.js';
import type { Expected, HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { blockElements } from './pack.js';
import type { Activation, Epilogue, LinearProblem } from './problem.js';
import { segmentStart, weightColumns } from './segments.js';
import { randomTiles, tileValues } from './testing/kept_tiles.js';

/** Extras of the few-rows kernel; the many-rows kernel has no norm. */
interface Variant extends LinearProblem {
  readonly epilogue: Epilogue;
  readonly activation?: Activation;
  readonly norm?: boolean;
  readonly eps?: number;
}

const geluTanh = (g: number): number => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3)));

/** By a series of positive terms. */
function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= (2 * x * x) / (2 * n + 1);
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
export const geluErf = (g: number): number => 0.5 * g * (1 + erf(g * Math.SQRT1_2));

export const activations: Readonly<Record<Activation, (g: number) => number>> = {
  silu: (g) => g / (1 + Math.exp(-g)),
  gelu_tanh: geluTanh,
  gelu: geluErf,
};

/** Rows of the weight matrix: swiglu holds gate rows, then up rows, each padded to 32. */
const weightRows = (problem: Variant): number =>
  problem.epilogue === 'swiglu' ? alignUp(problem.outFeatures, 32) + problem.outFeatures : problem.outFeatures;

export const outLength = ({ output, segments, rows, outStride }: LinearProblem): number =>
  (output === 'segments' ? (segments.count ?? segments.total - (segments.first ?? 0)) : 1) * rows * outStride;

/** Random activations (zero padding), packed weights, and where used bias, norm weight and earlier contents of out. */
export function linearInputs(problem: Variant, random: Random): HostArrays {
  const { rows, inFeatures, type, segments, bias, xStride, epilogue } = problem;
  const x = new Float32Array(rows * xStride);
  for (let r = 0; r < rows; r++) x.set(random.normals(inFeatures), r * xStride);
  const columns = weightColumns(problem.modelInFeatures ?? inFeatures, segments, blockElements(type));
  const width = columns.end - columns.start;
  const n = weightRows(problem);
  const packed = randomTiles(type, random, n, width, 1 / Math.sqrt(inFeatures));
  return {
    x,
    weight: packed.weight,
    ...(packed.scale ? { scale: packed.scale } : {}),
    ...(bias ? { bias: random.normals(n + (problem.biasOffset ?? 0) + (rows - 1) * (problem.biasStride ?? 0)) } : {}),
    ...(problem.norm ? { norm_weight: random.normals(alignUp(inFeatures, 4)) } : {}),
    ...(epilogue === 'residual' ? { out: random.normals(outLength(problem)) } : {}),
  };
}

/** Float64, straight from the equation; padding of out rows is left undefined. */
export function linearReference(problem: Variant, inputs: HostArrays): Expected {
  const { rows, inFeatures, outFeatures, type, xStride, outStride, outOffset = 0, epilogue } = problem;
  const { biasStride = 0, biasOffset = 0 } = problem;
  const modelInFeatures = problem.modelInFeatures ?? inFeatures;
  const { first = 0, total } = problem.segments;
  const count = problem.segments.count ?? total - first;
  const columns = weightColumns(modelInFeatures, problem.segments, blockElements(type));
  const width = columns.end - columns.start;
  const { weight, scale, bias, norm_weight: normWeight } = inputs as Record<string, Uint32Array<ArrayBuffer>>;
  const w = tileValues(type, { weight: weight!, scale }, weightRows(problem), width);
  const xStart = segmentStart(first, modelInFeatures, problem.segments);

  const activation = (row: number): number[] => {
    const values = Array.from(inputs['x']!.subarray(row * xStride, row * xStride + inFeatures));
    if (!normWeight) return values;
    const mean = values.reduce((sum, v) => sum + v * v, 0) / inFeatures;
    return values.map((v, k) => (v / Math.sqrt(mean + problem.eps!)) * normWeight[k]!);
  };
  const dot = (x: number[], n: number, start: number, end: number): number => {
    let sum = 0;
    for (let k = start; k < end; k++) sum += w[n * width + k - columns.start]! * x[k - xStart]!;
    return sum;
  };

  const out = Array.from<number>({ length: outLength(problem) });
  for (let row = 0; row < rows; row++) {
    const x = activation(row);
    const whole = (n: number): number =>
      dot(x, n, xStart, xStart + inFeatures) + (bias ? bias[row * biasStride + biasOffset + n]! : 0);
    for (let n = 0; n < outFeatures; n++) {
      const at = row * outStride + outOffset + n;
      if (problem.output === 'segments') {
        for (let s = 0; s < count; s++) {
          const [start, end] = [first + s, first + s + 1].map((i) =>
            segmentStart(i, modelInFeatures, problem.segments),
          );
          out[s * rows * outStride + at] = dot(x, n, start!, end!);
        }
      } else if (epilogue === 'swiglu') {
        const gate = whole(n);
        const active = activations[problem.activation ?? 'silu'](gate);
        out[at] = active * whole(alignUp(outFeatures, 32) + n);
      } else {
        const { outScale = 1, outCap } = problem;
        const value = whole(n) * outScale;
        if (epilogue === 'gelu') out[at] = activations[problem.activation ?? 'gelu_tanh'](value);
        else if (outCap !== undefined) out[at] = outCap * Math.tanh(value / outCap);
        else out[at] = value + (epilogue === 'residual' ? inputs['out']![at]! : 0);
      }
    }
  }
  return { out };
}
