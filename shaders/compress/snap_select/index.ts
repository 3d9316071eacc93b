import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkWindow, listThreads, promptSteps, type SelectionProblem, TOP_K_DIGITS } from '../problem.js';
import steps from '../../lib/steps.wgsl?raw';
import topK from '../top_k.wgsl?raw';
import source from './snap_select.wgsl?raw';

export interface SnapSelectProblem extends SelectionProblem {
  /** kv heads of this rank. */
  readonly kvHeads: number;
  /** Where this rank's first kv head stands among the heads of the scores. Defaults to 0. */
  readonly firstScoreHead?: number;
}

/** The entries that each kv head keeps: its best by score, as many as its budget says, and the window; ascending. */
export const snapSelect = defineKernel({
  name: 'snap_select',
  bindings: { pooled: 'read', compress_info: 'read', caps: 'read', kept: 'read_write', kept_lengths: 'read_write' },
  params: { score_stride: 'u32', first_score_head: 'u32', window: 'u32', digits: 'u32' },
  plan({ kvHeads, scoreStride, window, firstScoreHead = 0 }: SnapSelectProblem, traits) {
    checkWindow('snap_select', window);
    return {
      wgsl: [steps, topK, source],
      constants: { THREADS: listThreads(traits) },
      params: { score_stride: scoreStride, first_score_head: firstScoreHead, window, digits: TOP_K_DIGITS },
      grid: (step) => [kvHeads, 1, promptSteps(step)],
    };
  },
});
