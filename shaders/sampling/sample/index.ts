import { defineKernel } from '../../../src/gpu/kernel.js';
import random from '../../lib/random.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import binnedLayout from '../binned_layout.wgsl?raw';
import logit from '../logit.wgsl?raw';
import {
  BIN_PAIRS,
  CANDIDATES,
  checkSamplingProblem,
  LISTED,
  partialsPerSlot,
  type SamplingProblem,
  seenWords,
} from '../params.js';
import runningSums from '../running_sums.wgsl?raw';
import weights from '../weights.wgsl?raw';
import source from './sample.wgsl?raw';
import visit from './visit.wgsl?raw';
import walk from './walk.wgsl?raw';

export interface SampleProblem extends SamplingProblem {
  /** False promises that every slot is greedy; default true. */
  readonly draws?: boolean;
  /** What `partials` holds; default: what one `argmax_partial` of the whole vocabulary wrote. */
  readonly partials?: {
    /** Ranks that wrote some, one part each. */
    readonly parts: number;
    /** Pairs of each slot in a part. */
    readonly pairs: number;
    /**
     * Default 'best'. 'candidates': they are from `candidates`: drawing slots have a top_k of 1 to CANDIDATES, and the logits aren't
     * read. 'bins': one part, with what `bin_weights` and `list_bins` add.
     */
    readonly hold?: 'best' | 'candidates' | 'bins';
  };
}

/**
 * The next token of each slot, from the logits and `argmax_partial`'s partials, or from the ranks' candidates: greedy, or
 * temperature, top-k and top-p in Hugging Face's order. Writes everything that the next step reads, so that no token waits for the host.
 */
export const sample = defineKernel({
  name: 'sample',
  bindings: {
    logits: 'read',
    partials: 'read',
    sampling: 'read_write',
    seen: 'read_write',
    tokens: 'read_write',
    row_info: 'read_write',
    ids: 'read_write',
    step_counter: 'read',
  },
  params: {
    slots: 'u32',
    stride: 'u32',
    seen_words: 'u32',
    parts: 'u32',
    pairs: 'u32',
    items: 'u32',
    ring: 'u32',
    one: 'u32',
  },
  plan(problem: SampleProblem, traits) {
    checkSamplingProblem('sample', problem, traits.limits.maxComputeWorkgroupsPerDimension);
    const { slots, vocab, stride, ring, draws = true } = problem;
    const { parts, pairs, hold = 'best' } = problem.partials ?? { parts: 1, pairs: partialsPerSlot(vocab) };
    return {
      wgsl: [random, steps, logit, weights, runningSums, binnedLayout, visit, walk, source],
      constants: {
        THREADS: traits.software ? 32 : 256,
        DRAWS: draws,
        FROM_PARTIALS: draws && hold === 'candidates',
        BINNED: draws && hold === 'bins',
        PAIRS: CANDIDATES,
        BIN_PAIRS,
        LISTED,
      },
      params: {
        slots,
        stride,
        seen_words: seenWords(vocab),
        parts,
        pairs,
        items: hold === 'candidates' ? parts * pairs : vocab,
        ring,
        one: 1,
      },
      grid: (step) => [1, step.rows, 1],
    };
  },
});
