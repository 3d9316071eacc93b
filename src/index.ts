/** splitkv's public API. */
export { type ErrorCode, SplitkvError } from './base/errors.js';
export type * from './engine/api.js';
export { load } from './engine/load.js';
export { type AdapterBasics, type AdaptersMeasure, MATVEC_SIZE, measureAdapters } from './engine/measure/basics.js';
export { planModel, type PlanModelOptions, type PlanReport } from './engine/plan_model.js';
export type * from './engine/serving/api.js';
export { serve } from './engine/serving/serving_model.js';
