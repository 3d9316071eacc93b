/** splitkv's public API. */
export { type ErrorCode, SplitkvError } from './base/errors.js';
export type * from './engine/api.js';
export { load } from './engine/load.js';
