/**
 * Room: the solver that puts kv heads on ranks by measured load: profiles in, placements out. A library of its own,
 * without a GPU. Read arrange.ts next, then solvers/solvers.ts; docs/arrangement.md explains.
 */

export { arrange, copyLimit } from './arrange.js';
export * from './files.js';
export { promptDeviations, promptUtilisation } from './prompts.js';
export { makespan, rankLoads, utilisation } from './task.js';
export * from './types.js';
