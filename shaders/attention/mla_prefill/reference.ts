import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { MERGE_LANES } from '../../cache/kv_cache.js';
import { expectedPartials, type MlaCase } from '../mla_fixture.js';

/** Partials of every merge lane of this rank that holds tokens of the row; the others are not compared. */
export const mlaPrefillReference = (problem: MlaCase, inputs: HostArrays): Expected =>
  expectedPartials(problem, inputs, problem.lanes, (chunk) => chunk % MERGE_LANES);
