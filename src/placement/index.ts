/**
 * Room: who holds what, as data and without a GPU. A Plan (plan.ts) says it, Owners (owners.ts) answer who holds a
 * piece of the cache, routes.ts says what travels in a step. Policies make plans (`make`), checks refuse (`check`),
 * the planner predicts (`cost`). Read plan.ts next.
 */

export { COPY_SHARING, type CopySharing } from '../arrangement/types.js';
export { checkTogether, type Feature, featuresOf, misfit, modelFeatures } from './check/capabilities.js';
export { checkPlan } from './check/check_plan.js';
export { layerExchanges, mlpKind, stepExchanges } from './cost/exchanges.js';
export * from './cost/measure.js';
export { generatedRows, type ModelWork, promptRows, stageSteps } from './cost/step_rows.js';
export { arrangedPlan } from './make/arranged_plan.js';
export { bySpeed } from './make/by_speed.js';
export { type AskedPlan, type Degrees, planOfDegrees } from './make/degrees.js';
export { expectedEntries, LANE_ENTRIES, lanesThatPay } from './make/lane_sharing.js';
export { makePlan, type PlanOptions, stageCounts } from './make/make_plan.js';
export * from './make/policy.js';
export * from './memory.js';
export * from './owner.js';
export { Owners } from './owners.js';
export { describePlan, explainPick, formatPlanTable } from './plan/describe_plan.js';
export { isArrangement, parsePlan, parsePlanFile, type PlanFile } from './plan/parse_plan.js';
export * from './plan.js';
export * from './planner.js';
export * from './pools.js';
export * from './routes.js';
export { chunkRoom, type CopyMove, holdersOf, type SharedSequence } from './sequences/copies.js';
export { LaneShares } from './sequences/lane_shares.js';
export { roomByPlace, rootShareOf, sequenceWeights, withSequenceWeights } from './sequences/sequence_weights.js';
export * from './topology.js';
