import { sameList } from './lists.js';

/**
 * Placement as data: who holds which weights and which pieces of the KV cache. Policies make a Plan, `checkPlan` refuses a wrong
 * one, the runtime reads it. Plain JSON, versioned; nothing here touches a GPU.
 */

/**
 * What placement knows of a model: counts only.
 *
 * Attention segments are the pieces that a tensor-parallel plan may hand out, and the segments in which o_proj's contraction is
 * summed: a kv head with its query heads (llama), or one of 8 groups of query heads (MLA: groups may be empty where there are
 * fewer than 8 heads). The cache has an axis of kv heads for llama; MLA's latent has none and counts as one.
 */
export interface ModelShape {
  readonly numLayers: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  /** Query heads of each attention segment. */
  readonly segmentHeads: readonly number[];
  readonly kvHeads: number;
  /** The latent cache: every rank that attends needs all of a token's entry. */
  readonly latent: boolean;
  /** Columns of the MLP's down projection in each of its 8 segments; the widest layer's. */
  readonly mlpSegments: readonly number[];
  /** Routed experts of an expert layer; 0 without. */
  readonly numExperts: number;
}

/** What one rank holds of a stage's layers. Lists are ascending. */
export interface RankShare {
  readonly rank: number;
  /** Attention segments whose q, k, v (MLA: q, kv_b) and o weights it holds. */
  readonly heads: readonly number[];
  /** Segments of the MLP's intermediate size (gate, up and down weights; shared experts too). */
  readonly mlp: readonly number[];
  /** Routed experts; empty without experts. */
  readonly experts: readonly number[];
  /** kv heads whose cache it holds (MLA: [0], the latent) ... */
  readonly kvHeads: readonly number[];
  /** ... for the chunks of these merge lanes (chunk c is of lane c mod 8), before a sequence's offset rotates them. */
  readonly lanes: readonly number[];
  /**
   * Ranks keep whole sequences, each in proportion to this weight; undefined on every rank of a stage where sequences aren't dealt
   * out. Token parallelism: a rank with weights is a root, and ranks without heads, MLP segments and experts keep sequences of the
   * root with the same kvHeads; they hold cache and no weights. Attention data parallelism (`runsOwnRows`): every rank holds all
   * heads and runs the rows of its own sequences; rows of all ranks meet where MLP segments or experts are cut.
   */
  readonly sequences?: number | undefined;
}

/** True for a rank that keeps sequences of another rank and no weights. */
export const keepsCacheOnly = ({ heads }: Pick<RankShare, 'heads'>): boolean => heads.length === 0;

/** Contiguous layers [first, end) held by the same ranks in the same way. */
export interface Stage {
  readonly layers: readonly [first: number, end: number];
  readonly shares: readonly RankShare[];
}

/** Rows [first, end) of the embedding table or of the output head on a rank. */
export interface VocabShare {
  readonly rank: number;
  readonly rows: readonly [first: number, end: number];
}

/** True for attention data parallelism: several ranks with the same heads, each with the rows and the cache of its own sequences. */
export const runsOwnRows = ({ shares }: Pick<Stage, 'shares'>): boolean =>
  shares.length > 1 &&
  shares.every(
    (share) => share.sequences !== undefined && !keepsCacheOnly(share) && sameList(share.heads, shares[0]!.heads),
  );

export interface Plan {
  readonly version: 1;
  /** The policy that made it, for people: 'single', 'tp', 'sp', 'tp+sp', 'pp', 'pp x tp', 'adp', ... */
  readonly policy: string;
  readonly worldSize: number;
  /** In order of layers; together they cover every layer once. */
  readonly stages: readonly Stage[];
  /** Either all rows on every rank of the first stage, or rows cut over them. */
  readonly embedding: readonly VocabShare[];
  /**
   * Rows of the output head, cut over ranks of the last stage (or all on one). The first one listed samples; where ranks run their own
   * rows, every rank holds all rows and samples its own sequences' tokens.
   */
  readonly head: readonly VocabShare[];
}
