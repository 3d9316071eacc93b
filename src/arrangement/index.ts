/**
 * Room: the solver that puts kv heads on ranks by measured load: profiles in, placements out. A library of its own,
 * without a GPU. Read arrange.ts next, then solvers/solvers.ts; docs/arrangement.md explains.
 */

export { arrange, copyLimit } from './arrange.js';
export { type ArrangementFile, parseArrangementFile, toArrangementFile } from './arrangement_file.js';
export { parseProfile, type Profile } from './profile.js';
export { staticPlacement } from './static.js';
export { busiestTotal, makespan, rankCopies, rankLoads, utilisation } from './task.js';
export {
  type Arrangement,
  type ArrangementProblem,
  type HeadCosts,
  type HeadShare,
  type LayerPlacement,
  type Mode,
  MODES,
  type Objective,
  OBJECTIVES,
  type Placement,
} from './types.js';
