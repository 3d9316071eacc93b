import { SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import source from './moe_sort.wgsl?raw';

export interface MoeSortProblem {
  /** Most rows of a step, and the places that each expert has in `pairs`: a row has an expert at most once. */
  readonly rows: number;
  readonly topK: number;
  readonly experts: number;
}

/**
 * For each expert the list of its (row, slot)s, as row * topK + slot in ascending order: `pairs` u32 [experts][rows], and how many
 * `pair_counts` u32 [experts]. The step's number of rows comes from `row_count`, which moe_route writes.
 */
export const moeSort = defineKernel({
  name: 'moe_sort',
  bindings: { expert_ids: 'read', row_count: 'read', pairs: 'read_write', pair_counts: 'read_write' },
  params: { rows: 'u32', top_k: 'u32' },
  plan({ rows, topK, experts }: MoeSortProblem, traits) {
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (experts < 1 || experts > most || topK < 1 || topK > experts) {
      throw new SplitkvError(
        'internal',
        `moe_sort: topK ${topK}, experts ${experts}: expected 1 <= topK <= experts <= ${most}`,
      );
    }
    return {
      wgsl: [source],
      constants: { THREADS: traits.software ? 4 : 64 },
      params: { rows, top_k: topK },
      grid: [experts, 1, 1],
    };
  },
});
