import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { UNIT_ELEMENTS } from '../../linear/pack.js';
import { randomTiles, someKept } from '../../linear/testing/kept_tiles.js';
import { expertLayout } from '../experts.js';
import { expertInputs, UNTOUCHED } from '../fixture.js';
import { expertLinearRoute, type ExpertRouteProblem } from './index.js';
import { expertRouteReference, hiddenProblem } from './reference.js';

type Rest = Partial<Omit<ExpertRouteProblem, 'shared'>> & {
  readonly sharedWidth?: number;
  readonly races?: boolean;
  readonly large?: boolean;
};

function routedCase(
  name: string,
  [experts, topK]: readonly [experts: number, topK: number],
  [inFeatures, outFeatures]: readonly [number, number],
  { sharedWidth = 0, races = false, large = false, ...rest }: Rest = {},
): KernelCase<ExpertRouteProblem> {
  const problem = {
    experts,
    topK,
    inFeatures,
    outFeatures,
    type: 'f16' as const,
    normEps: 1e-5,
    xStride: alignUp(inFeatures, 32),
    outStride: alignUp(outFeatures, 32),
    groups: 1,
    topkGroups: 1,
    scoring: 'softmax' as const,
    method: 'greedy' as const,
    normTopkProb: false,
    routedScalingFactor: 1,
    correctionBias: false,
    ...rest,
  };
  const { tiles, weightBytes, scaleBytes } = expertLayout(hiddenProblem(problem));
  const { expertFirst = 0, expertCount = experts - expertFirst, type } = problem;
  const firstUnit = (expertCount * tiles * 32 * alignUp(inFeatures, 32)) / UNIT_ELEMENTS[type];
  return {
    name,
    problem: { ...problem, ...(sharedWidth > 0 && { shared: { width: sharedWidth, firstUnit } }) },
    seed: 16,
    step: { rows: 1, chunks: 1 },
    flops: 4 * inFeatures * (topK * outFeatures + sharedWidth),
    bytes: (topK + sharedWidth / outFeatures) * (weightBytes + scaleBytes),
    tolerance: { absolute: 5e-5, relative: 5e-5 },
    races,
    large,
  };
}

const V3 = {
  scoring: 'sigmoid',
  method: 'noaux_tc',
  correctionBias: true,
  normTopkProb: true,
  routedScalingFactor: 2.5,
} as const;
const OAI = { type: 'mxfp4', bias: true, clamped: { alpha: 1.702, limit: 1.5 }, normTopkProb: true } as const;

export const suite: KernelSuite<
  typeof expertLinearRoute.bindings,
  typeof expertLinearRoute.params,
  ExpertRouteProblem
> = {
  kernel: expertLinearRoute,
  cases: [
    routedCase('f16, one of 4', [4, 1], [40, 24], { races: true }),
    routedCase('f16, 2 of 4 and a shared one', [4, 2], [40, 24], { sharedWidth: 24, races: true }),
    routedCase('q4, 6 of 64 and two shared ones', [64, 6], [96, 40], { type: 'q4', sharedWidth: 80 }),
    routedCase('q8, 8 of 32 in 4 groups by two, one shared of another width', [32, 8], [72, 33], {
      ...V3,
      groups: 4,
      topkGroups: 2,
      type: 'q8',
      sharedWidth: 100,
    }),
    ...someKept('expert_linear_route').map((type) =>
      routedCase(`${type}, 2 of 4 and a shared one`, [4, 2], [256, 40], { type, sharedWidth: 80 }),
    ),
    routedCase('f32, every one of 3, narrow shared one', [3, 3], [72, 65], { type: 'f32', sharedWidth: 8 }),
    routedCase('mxfp4, 4 of 32, biased and clamped', [32, 4], [360, 96], OAI),
    routedCase('q8, experts 3 to 4 of 8', [8, 6], [72, 33], { type: 'q8', expertFirst: 3, expertCount: 2 }),
    routedCase('mxfp4, experts 3 to 4 of 8, wide strides', [8, 6], [96, 65], {
      ...OAI,
      expertFirst: 3,
      expertCount: 2,
      biasFirst: 1,
      xStride: 100,
      outStride: 70,
    }),
    routedCase('q4, 6 of 64 and two shared ones, large', [64, 6], [2048, 1408], {
      type: 'q4',
      sharedWidth: 2816,
      large: true,
    }),
    routedCase('q4, 8 of 128, large', [128, 8], [2048, 768], { type: 'q4', normTopkProb: true, large: true }),
    routedCase('mxfp4, 4 of 32, large', [32, 4], [2880, 2880], { ...OAI, large: true }),
  ],
  inputs: (problem, random) => {
    const { experts, topK, inFeatures, outStride, type, shared, correctionBias } = problem;
    const { out: _out, ...hidden } = expertInputs(hiddenProblem(problem), random);
    const width = shared?.width ?? 0;
    // Gate and up begin a tile each.
    const rows = alignUp(width, 32) + width;
    const beside = randomTiles(type, random, rows, inFeatures, 1 / Math.sqrt(inFeatures));
    const joined = (routed: Uint32Array | undefined, more: Uint32Array | undefined) =>
      Uint32Array.from([...routed!, ...more!]);
    return {
      ...hidden,
      ...(shared && { weight: joined(hidden['weight'] as Uint32Array, beside.weight) }),
      ...(shared && beside.scale && { scale: joined(hidden['scale'] as Uint32Array, beside.scale) }),
      norm_weight: random.normals(alignUp(inFeatures, 4)),
      logits: random.normals(experts, 2),
      ...(correctionBias && { correction_bias: random.normals(experts, 0.5) }),
      out: new Float32Array(topK * outStride + width + 5).fill(UNTOUCHED),
    };
  },
  outputs: ({ topK }): Record<string, { type: 'f32' | 'u32'; length: number }> => ({
    expert_ids: { type: 'u32', length: topK },
    expert_weights: { type: 'f32', length: topK },
  }),
  reference: expertRouteReference,
};
