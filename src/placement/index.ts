/**
 * Room: who holds what, as data and without a GPU. A Plan (plan.ts) says it, Owners (owners.ts) answer who holds a
 * piece of the cache, routes.ts says what travels in a step. Policies make plans (`make`), checks refuse (`check`),
 * the planner predicts (`cost`). Read plan.ts next.
 */

export { COPY_SHARING, type CopySharing } from '../arrangement/types.js';
export { fitLinear, type LinearSample } from './cost/fit_linear.js';
export type {
  AdapterMeasure,
  LinkMeasure,
  LayerMeasure,
  LinearMeasure,
  MachineMeasure,
  RowsMeasure,
} from './cost/measure.js';
export { exchangesOfStep } from './cost/exchanges.js';
export { stageSteps } from './cost/stage_step.js';
export { generatedRows, promptRows } from './cost/step_rows.js';
export type { ModelWork } from './cost/work.js';
export { arrangedPlan } from './make/arranged_plan.js';
export { chunkRoom, type CopyMove, holdersOf, type SharedSequence } from './sequences/copies.js';
export { checkTogether, type Feature, featuresOf, misfit, modelFeatures } from './check/capabilities.js';
export { checkPlan } from './check/check_plan.js';
export { expectedEntries, LANE_ENTRIES, lanesThatPay } from './make/lane_sharing.js';
export { describePlan } from './plan/describe_plan.js';
export { type AskedPlan, type Degrees, planOfDegrees } from './make/degrees.js';
export { makePlan, type PlanOptions, stageCounts } from './make/make_plan.js';
export { checkMemory, type MemoryOptions, planMemory, type RankMemory } from './memory.js';
export { CHUNK_TOKENS, chunkOwner, localChunks, MERGE_LANES } from './owner.js';
export { isArrangement, parsePlan, parsePlanFile, type PlanFile } from './plan/parse_plan.js';
export {
  defaultPromptChunk,
  type HeadCopy,
  isKvOnly,
  type ModelShape,
  pipelineDepth,
  type Plan,
  planName,
  type RankShare,
  type Stage,
  type StageKind,
  type VocabShare,
} from './plan.js';
export { roomByPlace, rootShareOf, sequenceWeights, withSequenceWeights } from './sequences/sequence_weights.js';
export { explainPick, formatPlanTable } from './plan/plan_table.js';
export {
  pickPlan,
  type PlanCandidate,
  type PlannerOptions,
  type PlanPrediction,
  predictPlan,
  predictPlans,
  type Workload,
} from './planner.js';
export { ARRANGED, isArranged, parsePolicy, POLICIES, readPolicyName, registerPolicy } from './make/policy.js';
export type { ModelSizes } from './sizes.js';
export { Owners } from './owners.js';
export { type BlockRun, CachePools, keptWindow, MAX_STEPS_IN_FLIGHT, RankBlocks, windowBlocks } from './pools.js';
export { leastLoadedOffset } from './owner.js';
export * from './routes.js';
export {
  firstRowOf,
  matesOf,
  type PlanTopology,
  planTopology,
  type RankTopology,
  rankTopology,
  type RowRole,
  type StageTopology,
} from './topology.js';
