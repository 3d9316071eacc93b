import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { listsOf } from '../score_fixture.js';
import { adaBudgets } from '../selection.js';
import type { AdaBudgetsCase } from './cases.js';

export const adaBudgetsReference = (problem: AdaBudgetsCase, inputs: HostArrays): Expected => ({
  caps: adaBudgets(listsOf(problem, inputs['pooled']!), problem.base, problem.floor),
});
