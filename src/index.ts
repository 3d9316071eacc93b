/**
 * Room: splitkv's public API. Types and functions that users import are listed here; entry.ts has the functions, with what
 * each loads on demand.
 */

export { type ErrorCode, type ErrorDetails, SplitkvError } from './base/errors.js';
export type * from './engine/contracts/api.js';
export type { AdapterBasics, AdaptersMeasure } from './engine/measure/basics.js';
export { MATVEC_SIZE } from './engine/measure/matvec_size.js';
export { joinPeer, load, measureAdapters, models, openPeers, planModel, serve } from './entry.js';
export type { JoinPeerOptions } from './cluster/peers/peers.js';
export type { RankHost, RankState } from './cluster/ranks/rank_host.js';
export type { Invitation, PeerAsks, PeerOptions, Peers } from './engine/contracts/cluster_options.js';
export type { DownloadSize, PlanModelOptions, PlanReport } from './engine/faces/plan_model.js';
export type { PromptSource } from './engine/serving/prompt_tokens.js';
export type * from './engine/serving/api.js';
export { type CachedModel, deleteCached, listCached, type Source } from './loader/index.js';
