import { range } from '../../../src/base/lists.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import geluWgsl from '../../lib/gelu.wgsl?raw';
import tanhWgsl from '../../lib/tanh.wgsl?raw';
import treeSumWgsl from '../../lib/tree_sum.wgsl?raw';
import biasSharedWgsl from '../bias_shared.wgsl?raw';
import outputWgsl from '../output.wgsl?raw';
import { treeLevels } from '../segments.js';
import reduceWgsl from './reduce_segments.wgsl?raw';

export interface ReduceSegmentsProblem {
  /** Most rows of a step, as in the problem that wrote the segments. */
  readonly rows: number;
  /** All segments of the contraction, in the model's order. */
  readonly segmentCount: number;
  /** Where `segments` has sums of subtrees: their first segments, ascending from 0 on. Default: it has each segment by itself. */
  readonly begins?: readonly number[];
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
    begins_0: 'u32',
    begins_1: 'u32',
    begins_2: 'u32',
    begins_3: 'u32',
    out_scale: 'f32',
  },
  plan(problem: ReduceSegmentsProblem) {
    const { rows, segmentCount, outFeatures, inStride, outStride, outOffset = 0, bias, epilogue } = problem;
    const { begins = range(0, segmentCount) } = problem;
    const bits = (from: number): number =>
      begins.reduce((word, at) => (at >= from && at < from + 32 ? (word | (1 << (at - from))) >>> 0 : word), 0);
    return {
      wgsl: [treeSumWgsl, tanhWgsl, geluWgsl, biasSharedWgsl, outputWgsl, reduceWgsl],
      constants: {
        BIAS: bias,
        RESIDUAL: epilogue === 'residual',
        GELU_OUT: false,
        ERF: false,
        OUT_CAP: 0,
        TREE_LEVELS: treeLevels('reduce_segments', segmentCount),
      },
      params: {
        rows,
        out_features: outFeatures,
        in_stride: inStride,
        out_stride: outStride,
        out_offset: outOffset,
        segment_count: segmentCount,
        begins_0: bits(0),
        begins_1: bits(32),
        begins_2: bits(64),
        begins_3: bits(96),
        out_scale: problem.outScale ?? 1,
      },
      grid: (step) => [ceilDiv(outFeatures, THREADS), Math.min(step.rows, rows), 1],
    };
  },
});
