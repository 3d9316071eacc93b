import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type MatrixType, packedLayout } from '../pack.js';
import { randomTiles, someKept } from '../testing/kept_tiles.js';
import { linearGrouped, type LinearGroupedProblem } from './index.js';
import { linearGroupedReference } from './reference.js';

/** Groups of `gap` elements more than they need, on both sides. */
export function groupedProblem(
  type: MatrixType,
  rows: number,
  groups: number,
  inFeatures: number,
  outFeatures: number,
  gap = 8,
): LinearGroupedProblem {
  return {
    rows,
    tileRows: rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1,
    groups,
    inFeatures,
    outFeatures,
    type,
    xStride: alignUp(4 + groups * (inFeatures + gap), 32),
    xOffset: 4,
    xGroupStride: inFeatures + gap,
    outStride: alignUp(3 + groups * (outFeatures + gap), 32),
    outOffset: 3,
    outGroupStride: outFeatures + gap,
  };
}

function groupedCase(name: string, problem: LinearGroupedProblem, races = false): KernelCase<LinearGroupedProblem> {
  const { rows, groups, inFeatures, outFeatures, type } = problem;
  const layout = packedLayout(type, outFeatures, inFeatures);
  return {
    name: `${type}, ${name}`,
    problem,
    seed: 5,
    tolerance: { absolute: 2e-5, relative: 1e-5 },
    flops: 2 * rows * groups * inFeatures * outFeatures,
    bytes: groups * (layout.weightBytes + layout.scaleBytes) + 4 * rows * groups * (inFeatures + outFeatures),
    step: { rows, chunks: 1 },
    races,
  };
}

/** NaN in x wherever no slice is: none of it may be read into a sum. */
function inputs(problem: LinearGroupedProblem, random: Random): HostArrays {
  const { rows, groups, inFeatures, outFeatures, type, xStride, xOffset, xGroupStride } = problem;
  const x = new Float32Array(rows * xStride).fill(Number.NaN);
  for (let row = 0; row < rows; row++) {
    for (let g = 0; g < groups; g++) x.set(random.normals(inFeatures), row * xStride + xOffset + g * xGroupStride);
  }
  const layout = packedLayout(type, outFeatures, inFeatures);
  const weight = new Uint32Array((groups * layout.weightBytes) / 4);
  const scale = new Uint32Array((groups * layout.scaleBytes) / 4);
  for (let g = 0; g < groups; g++) {
    const packed = randomTiles(type, random, outFeatures, inFeatures, inFeatures ** -0.5);
    weight.set(packed.weight, (g * layout.weightBytes) / 4);
    if (packed.scale) scale.set(packed.scale, (g * layout.scaleBytes) / 4);
  }
  return { x, weight, ...(layout.scaleBytes > 0 ? { scale } : {}) };
}

export const suite: KernelSuite<typeof linearGrouped.bindings, typeof linearGrouped.params, LinearGroupedProblem> = {
  kernel: linearGrouped,
  cases: [
    groupedCase('absorb of a tiny head', groupedProblem('f32', 1, 3, 8, 40), true),
    groupedCase('absorb, prompt rows', groupedProblem('f32', 17, 8, 32, 64)),
    groupedCase('up, prompt rows', groupedProblem('f16', 9, 8, 64, 32)),
    groupedCase('absorb 128 to 512', groupedProblem('f16', 1, 16, 128, 512)),
    groupedCase('up 512 to 128', groupedProblem('f16', 1, 16, 512, 128)),
    groupedCase('slices cut units', groupedProblem('q8', 2, 2, 40, 8), true),
    groupedCase('slices cut units', groupedProblem('q4', 3, 2, 72, 33)),
    groupedCase('whole units', groupedProblem('q4', 1, 3, 64, 64)),
    ...someKept('linear_grouped').map((type) => groupedCase('up 512 to 33', groupedProblem(type, 3, 2, 512, 33))),
    groupedCase('groups side by side', groupedProblem('q8', 1, 3, 24, 8, 0)),
  ],
  inputs,
  outputs: ({ rows, outStride }): Record<string, { type: 'f32'; length: number }> => ({
    out: { type: 'f32', length: rows * outStride },
  }),
  reference: linearGroupedReference,
};
