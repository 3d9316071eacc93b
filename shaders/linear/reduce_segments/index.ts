import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import geluWgsl from '../../lib/gelu.wgsl?raw';
import tanhWgsl from '../../lib/tanh.wgsl?raw';
import biasSharedWgsl from '../bias_shared.wgsl?raw';
import outputWgsl from '../output.wgsl?raw';
import reduceWgsl from './reduce_segments.wgsl?raw';

export interface ReduceSegmentsProblem {
  /** Most rows of a step, as in the problem that wrote the segments. */
  readonly rows: number;
  /** All segments of the contraction, in the model's order. */
  readonly segmentCount: number;
  readonly outFeatures: number;
  /** Elements of a row of a segment: the outStride of the problem that wrote it. */
  readonly inStride: number;
  readonly outStride: number;
  /** Element of the out row that output 0 goes to. Defaults to 0. */
  readonly outOffset?: number;
  /** The sum and its bias times this, before the residual is added. Defaults to 1. */
  readonly outScale?: number;
  readonly bias: boolean;
  readonly epilogue: 'none' | 'residual';
}

const THREADS = 64;

/** Sums the segments that ranks computed: the same bits as `linear` or `linearTiled` with output 'sum'. */
export const reduceSegments = defineKernel({
  name: 'reduce_segments',
  bindings: { segments: 'read', bias: 'read', out: 'read_write' },
  params: {
    rows: 'u32',
    out_features: 'u32',
    in_stride: 'u32',
    out_stride: 'u32',
    out_offset: 'u32',
    segment_count: 'u32',
    out_scale: 'f32',
  },
  plan(problem: ReduceSegmentsProblem) {
    const { rows, segmentCount, outFeatures, inStride, outStride, outOffset = 0, bias, epilogue } = problem;
    return {
      wgsl: [tanhWgsl, geluWgsl, biasSharedWgsl, outputWgsl, reduceWgsl],
      constants: {
        BIAS: bias,
        RESIDUAL: epilogue === 'residual',
        GELU_OUT: false,
        ERF: false,
        OUT_CAP: 0,
      },
      params: {
        rows,
        out_features: outFeatures,
        in_stride: inStride,
        out_stride: outStride,
        out_offset: outOffset,
        segment_count: segmentCount,
        out_scale: problem.outScale ?? 1,
      },
      grid: (step) => [ceilDiv(outFeatures, THREADS), Math.min(step.rows, rows), 1],
    };
  },
});
