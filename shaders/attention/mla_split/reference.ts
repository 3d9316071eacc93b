import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { expectedPartials, type MlaCase } from '../mla_fixture.js';

/** Partials of every chunk of this rank that holds tokens of the row; chunks without are not compared (nothing is written there). */
export const mlaSplitReference = (problem: MlaCase, inputs: HostArrays): Expected =>
  expectedPartials(problem, inputs, problem.maxChunks, (chunk) => chunk);
