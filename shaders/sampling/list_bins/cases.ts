import type { KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { binnedCases, binnedInputs } from '../bin_weights/cases.js';
import type { SamplingCase } from '../case_inputs.js';
import { listBins } from './index.js';
import { listBinsReference, summedPartials } from './reference.js';

export const suite: KernelSuite<typeof listBins.bindings, typeof listBins.params, SamplingCase> = {
  kernel: listBins,
  cases: binnedCases,
  inputs: (problem, random) => {
    const inputs = binnedInputs(problem, random);
    return { ...inputs, partials: summedPartials(problem, inputs) };
  },
  outputs: () => ({}),
  reference: listBinsReference,
};
