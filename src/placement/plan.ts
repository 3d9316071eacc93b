/**
 * Placement as data: who holds which weights and which pieces of the KV cache. Policies make a Plan, `checkPlan` refuses a wrong
 * one, the runtime reads it. Plain JSON, versioned; nothing here touches a GPU.
 */

import type { CopySharing } from '../arrangement/types.js';
import { listIn } from '../base/lists.js';

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
  /** Pieces that the cache is cut into by heads: kv heads, or segments of several where layers differ in their kv heads; 1 with a latent. */
  readonly kvHeads: number;
  /** Layers differ in their kv heads. Default: they don't. */
  readonly mixedHeads?: boolean;
  /** Layers from this one on share keys and values, or inputs, so that one stage has them all. Default: none do. */
  readonly wholeFrom?: number | undefined;
  /** The latent cache: every rank that attends needs all of a token's entry. */
  readonly latent: boolean;
  /** Layers have a window: they attend to the last tokens only. Default: none has. */
  readonly windowed?: boolean;
  /** Layers have a state beside the cache of the others. Default: none has. */
  readonly recurrent?: boolean;
  /** Rows see those behind them: an encoder, whose texts are computed whole. Default: they don't. */
  readonly bothWays?: boolean;
  /** Columns of the MLP's down projection in each of its 8 segments; the widest layer's. */
  readonly mlpSegments: readonly number[];
  /** Routed experts of an expert layer; 0 without. */
  readonly numExperts: number;
}

/** A rank's part of a kv head that several ranks of the stage hold: a copy of the head. */
export interface HeadCopy {
  readonly head: number;
  /** Of the head's attention, above 0 and below 1; the shares of a head's copies add up to 1. */
  readonly share: number;
}

/** What one rank holds of a stage's layers. Lists are ascending. */
export interface RankShare {
  readonly rank: number;
  /** Attention segments whose q, k, v (MLA: q, kv_b) and o weights it holds. */
  readonly heads: readonly number[];
  /** Those of `heads` that other ranks hold too, ascending; only in arranged stages. */
  readonly copies?: readonly HeadCopy[] | undefined;
  /** Segments of the MLP's intermediate size (gate, up and down weights; shared experts too). */
  readonly mlp: readonly number[];
  /** Routed experts; empty without experts. */
  readonly experts: readonly number[];
  /** kv heads whose cache it holds (MLA: [0], the latent) ... */
  readonly kvHeads: readonly number[];
  /** ... for the chunks of these merge lanes (chunk c is of lane c mod 8), before a sequence's offset rotates them. */
  readonly lanes: readonly number[];
  /**
   * Ranks keep whole sequences, each in proportion to this weight; undefined on every rank of a stage that shards none. In 'token'
   * stages a rank with weights is a root, and KV-only ranks keep sequences of the root with the same kvHeads; neighbours with parts of
   * the lanes keep the same sequences together. In 'adp' stages a rank keeps the sequences whose rows it runs, alone or together
   * with its neighbours; if MLP segments or experts are cut over all ranks, the rows of all ranks are gathered there.
   */
  readonly sequences?: number | undefined;
}

/** True for a KV-only rank: it keeps sequences of a root and holds no weights. */
export const isKvOnly = ({ heads, mlp, experts }: Pick<RankShare, 'heads' | 'mlp' | 'experts'>): boolean =>
  heads.length + mlp.length + experts.length === 0;

/** Ranks with the same heads have MLP segments of their own: these are cut further than heads. Of ranks that run the same rows. */
export function cutsColumns(shares: readonly Pick<RankShare, 'heads' | 'mlp'>[]): boolean {
  const ways = (key: 'heads' | 'mlp'): number => new Set(shares.map((share) => share[key].join())).size;
  return ways('mlp') === shares.length && ways('heads') < shares.length;
}

/** Groups of ranks with the same list, in order of appearance. */
export function groupsAlike(shares: readonly RankShare[], key: 'heads' | 'mlp'): [RankShare, ...RankShare[]][] {
  const groups = new Map<string, RankShare[]>();
  for (const share of shares) listIn(groups, share[key].join()).push(share);
  return [...groups.values()] as [RankShare, ...RankShare[]][];
}

export const hasGap = (list: readonly number[]): boolean =>
  list.length > 0 && list.at(-1)! - list[0]! !== list.length - 1;

/**
 * How the ranks of a stage share it.
 * - 'tensor': a grid of weight groups and replicas, with the cache cut by heads, by lanes or both: one rank, tp, sp, tp+sp, ep.
 *   Replicas may be so in their heads only, and have MLP segments of their own: tp on more ranks than kv heads.
 * - 'token': roots with weights, and KV-only ranks that keep whole sequences of a root, or split each by lanes.
 * - 'adp': attention data parallelism: every rank, or each group of neighbours that cut heads and lanes as 'tensor' does, holds all
 *   heads, and runs the rows of its own sequences.
 * - 'arranged': a rank may hold any heads, with gaps, copies of others' heads, or none at all; it keeps the cache of its own.
 */
export type StageKind = (typeof STAGE_KINDS)[number];
export const STAGE_KINDS = ['tensor', 'token', 'adp', 'arranged'] as const;

/** Contiguous layers [first, end) held by the same ranks in the same way. */
export interface Stage {
  readonly layers: readonly [first: number, end: number];
  readonly kind: StageKind;
  readonly shares: readonly RankShare[];
  /**
   * Of an arranged stage: what each kv head is expected to keep, in any unit. Copies then share sequences out so that the busiest rank
   * has little to read; without it, so that each has its share.
   */
  readonly loads?: readonly number[] | undefined;
}

/** Rows [first, end) of the embedding table or of the output head on a rank. */
export interface VocabShare {
  readonly rank: number;
  readonly rows: readonly [first: number, end: number];
}

export interface Plan {
  readonly version: 1;
  /** The policy that made it, for people: 'single', 'tp', 'sp', 'tp+sp', 'pp', 'pp x tp', 'adp', 'arranged', ... */
  readonly policy: string;
  readonly worldSize: number;
  /** How copies of a head share it; where heads are copied. */
  readonly sharing?: CopySharing | undefined;
  /** By rank, in any unit, where ranks are unlike: copies that share a prompt's lanes anew go by it. */
  readonly speeds?: readonly number[] | undefined;
  /** Of an arrangement: the part of their time that ranks should be busy with attention, as the search expected it. */
  readonly utilisation?: number | undefined;
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

export const planName = ({ policy }: Pick<Plan, 'policy'>): string => `plan '${policy}'`;

/**
 * Stages, by index, whose layers work on one step after the other: a run ends before a stage that shares no rank with the one before.
 * Arranged plans have many stages on the same ranks.
 */
export function pipelineRuns({ stages }: Pick<Plan, 'stages'>): number[][] {
  const runs: number[][] = [];
  for (const [at, { shares }] of stages.entries()) {
    const before = stages[at - 1]?.shares ?? [];
    if (shares.some(({ rank }) => before.some((share) => share.rank === rank))) runs.at(-1)!.push(at);
    else runs.push([at]);
  }
  return runs;
}

/** Runs of layers that work on different steps at once. */
export const pipelineDepth = (plan: Pick<Plan, 'stages'>): number => pipelineRuns(plan).length;

/**
 * Prompt tokens that a step computes unless told otherwise. A pipeline's stages work side by side on the steps of a prompt, so it
 * takes more and smaller ones.
 */
export const defaultPromptChunk = (plan: Plan): number => (pipelineDepth(plan) > 1 ? 256 : 512);
