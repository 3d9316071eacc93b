import { usageError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkWindow, listThreads, promptSteps, type SelectionProblem, TOP_K_DIGITS } from '../problem.js';
import steps from '../../lib/steps.wgsl?raw';
import topK from '../top_k.wgsl?raw';
import source from './ada_budgets.wgsl?raw';

export interface AdaBudgetsProblem extends SelectionProblem {
  /** kv heads of the layer, whoever holds them. */
  readonly heads: number;
  /** Alpha: the part of the average budget that every head is given. 0 to 1, in steps of 0.001. */
  readonly floor: number;
}

/** Ada-KV's budgets of a layer's heads: their shares of the best scores of all heads together. */
export const adaBudgets = defineKernel({
  name: 'ada_budgets',
  bindings: { pooled: 'read', compress_info: 'read', caps: 'read_write' },
  params: { score_stride: 'u32', window: 'u32', floor: 'u32', digits: 'u32' },
  plan({ heads, floor, scoreStride, window }: AdaBudgetsProblem, traits) {
    checkWindow('ada_budgets', window);
    if (!Number.isInteger(heads) || heads < 1 || heads > 1024) {
      throw usageError(`ada_budgets: ${heads} heads; expected an integer from 1 to 1024`);
    }
    const thousandths = Math.round(floor * 1000);
    if (!(floor >= 0 && floor <= 1) || Math.abs(floor * 1000 - thousandths) > 1e-6) {
      throw usageError(`ada_budgets: floor ${floor}; expected 0 to 1 in steps of 0.001`);
    }
    // Shares are counted in thousandths, in 32 bits.
    if (scoreStride > 4_000_000) {
      throw usageError(`ada_budgets: scores of ${scoreStride} tokens; expected at most 4,000,000`);
    }
    return {
      wgsl: [steps, topK, source],
      constants: { THREADS: listThreads(traits), HEADS: heads },
      params: { score_stride: scoreStride, window, floor: thousandths, digits: TOP_K_DIGITS },
      grid: (step) => [1, 1, promptSteps(step)],
    };
  },
});
