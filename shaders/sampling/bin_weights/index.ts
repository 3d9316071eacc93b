import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import { BINNED_BINDINGS, BINNED_PARAMS, binnedPlan } from '../binned.js';
import layout from '../binned_layout.wgsl?raw';
import tile from '../binned_tile.wgsl?raw';
import logit from '../logit.wgsl?raw';
import type { SamplingProblem } from '../params.js';
import weights from '../weights.wgsl?raw';
import source from './bin_weights.wgsl?raw';

/** Sums of the vocabulary's weights by bins, behind the `partials` of an `argmaxPartial` that clears them; `listBins` is next. */
export const binWeights = defineKernel({
  name: 'bin_weights',
  bindings: BINNED_BINDINGS,
  params: BINNED_PARAMS,
  plan: (problem: SamplingProblem, traits) => ({
    wgsl: [steps, logit, weights, layout, tile, source],
    ...binnedPlan('bin_weights', problem, traits),
  }),
});
