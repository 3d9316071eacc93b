import { defineKernel } from '../../../src/gpu/kernel.js';
import random from '../../lib/random.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { BINNED_BINDINGS, BINNED_PARAMS, binnedPlan } from '../binned.js';
import layout from '../binned_layout.wgsl?raw';
import tile from '../binned_tile.wgsl?raw';
import logit from '../logit.wgsl?raw';
import type { SamplingProblem } from '../params.js';
import runningSums from '../running_sums.wgsl?raw';
import weights from '../weights.wgsl?raw';
import source from './list_bins.wgsl?raw';

/** Lists the tokens that `sample` looks at, by the bins that `binWeights` summed up: mostly some hundreds of the vocabulary. */
export const listBins = defineKernel({
  name: 'list_bins',
  bindings: BINNED_BINDINGS,
  params: BINNED_PARAMS,
  plan: (problem: SamplingProblem, traits) => ({
    wgsl: [random, steps, logit, weights, runningSums, layout, tile, source],
    ...binnedPlan('list_bins', problem, traits),
  }),
});
