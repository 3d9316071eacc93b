/**
 * Room: the solver that puts kv heads on ranks by measured load: profiles in, placements out. A library of its own,
 * without a GPU. Read arrange.ts next, then solvers/solvers.ts; docs/arrangement.md explains.
 */

export { arrange, copyLimit } from './arrange.js';
export { type ArrangementFile, parseArrangementFile, parseProfile, type Profile, toArrangementFile } from './files.js';
export { makespan, rankLoads, utilisation } from './task.js';
export {
  type Arrangement,
  type ArrangementProblem,
  type HeadCosts,
  type HeadShare,
  type LayerPlacement,
  type Mode,
  MODES,
  type Placement,
} from './types.js';
