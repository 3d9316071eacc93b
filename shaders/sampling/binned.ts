import type { DeviceTraits } from '../../src/gpu/device.js';
import { ceilDiv } from '../../src/base/math.js';
import type { StepShape } from '../../src/gpu/kernel.js';
import {
  BIN_PAIRS,
  BIN_TILE,
  checkSamplingProblem,
  LISTED,
  partialsPerSlot,
  type SamplingProblem,
  seenWords,
} from './params.js';

/** Bindings and params of the kernels that look at a tile of a vocabulary (binned_tile.wgsl). */
export const BINNED_BINDINGS = { logits: 'read', sampling: 'read', seen: 'read', partials: 'read_write' } as const;
export const BINNED_PARAMS = {
  vocab: 'u32',
  stride: 'u32',
  seen_words: 'u32',
  slots: 'u32',
  pairs: 'u32',
  one: 'u32',
} as const;

/** What their plans have in common. @throws SplitkvError as `checkSamplingProblem` */
export function binnedPlan(kernel: string, problem: SamplingProblem, { limits, software }: DeviceTraits) {
  checkSamplingProblem(kernel, problem, limits.maxComputeWorkgroupsPerDimension);
  const { slots, vocab, stride } = problem;
  const tiles = ceilDiv(vocab, BIN_TILE);
  return {
    constants: { THREADS: software ? 32 : 256, TILE: BIN_TILE, BIN_PAIRS, LISTED },
    params: { vocab, stride, seen_words: seenWords(vocab), slots, pairs: partialsPerSlot(vocab), one: 1 },
    grid: (step: StepShape) => [tiles, step.rows, 1] as const,
  };
}
