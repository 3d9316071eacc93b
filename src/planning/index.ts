/**
 * Room: `splitkv/planning`, the public face of placement and arrangement: pure functions that need no GPU, in Node
 * and in pages. What they take is checked here; what they do is in src/placement and src/arrangement. Read docs/planner.md next.
 */

export { type ErrorCode, SplitkvError } from '../base/errors.js';
export { parseArrangementFile, parseProfile, toArrangementFile } from '../arrangement/index.js';
export type {
  Arrangement,
  ArrangementFile,
  HeadShare,
  LayerPlacement,
  Mode,
  Placement,
  Profile,
} from '../arrangement/index.js';
export { type MeasuredProfile, measureProfile, type ProfileOptions } from '../engine/measure/measure_profile.js';
export { parsePlan, planOfDegrees, POLICIES } from '../placement/index.js';
export type {
  AskedPlan,
  CopySharing,
  Degrees,
  HeadCopy,
  ModelShape,
  Plan,
  PlanOptions,
  RankShare,
  Stage,
  StageKind,
  VocabShare,
} from '../placement/index.js';
export * from './plan.js';
