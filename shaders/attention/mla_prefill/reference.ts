import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { MERGE_LANES } from '../../cache/kv_cache.js';
import { expectedPartials, type MlaCase, tokensBy } from '../mla_fixture.js';

/** Partials of every merge lane that holds tokens of the row; the others are not compared. */
export const mlaPrefillReference = (problem: MlaCase, inputs: HostArrays): Expected =>
  expectedPartials(problem, inputs, problem.lanes, (position) => tokensBy(position, (chunk) => chunk % MERGE_LANES));
