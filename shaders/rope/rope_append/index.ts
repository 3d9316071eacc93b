import { usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { type TableLayout, tableConstants, tableWgsl } from '../../cache/head_tables.js';
import {
  type CacheHeads,
  cacheHeads,
  checkKvShape,
  checkStride,
  kvConstants,
  kvStage,
  type KvType,
  kvStageWgsl,
  kvWgsl,
  queryGroup,
} from '../../cache/kv_cache.js';
import { PIECE_PARAMS, piecesPlan, piecesWgsl, type QueryPieces, widestPiece } from '../../attention/query_pieces.js';
import headRope from '../../lib/head_rope.wgsl?raw';
import headNorm from '../../lib/head_norm.wgsl?raw';
import rotate from '../../lib/rotate.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './rope_append.wgsl?raw';

/** What is rotated of q and k heads. */
export interface RotaryHeads {
  readonly headDim: number;
  /** First elements of a head that are rotated, a multiple of 8; 0: none, and rope_table is unread. All where left out. */
  readonly rotary?: number;
  /** rope_table has two rows a position, of keys and of queries; otherwise one for both. */
  readonly queryRows?: boolean;
  /** Rows of pictures have three positions (lib/head_rope.wgsl); without `queryRows`. */
  readonly spans?: RopeSpans | undefined;
}

export interface RopeSpans {
  /** That rope_table has, before the pictures of slots. */
  readonly positions: number;
  readonly lines: number;
  readonly columns: number;
  /** Pairs that turn by the picture's, before the lines' and then the columns'; where left out all take turns. */
  readonly before?: number | undefined;
}

/** Pictures that a slot may have. */
export const ROPE_SPANS = 32;
/** Elements that rope_table has of a slot's. */
export const SPAN_ELEMENTS = ROPE_SPANS * 4;

/** What a table has of a slot: of each picture the entry of its first row, its lines and its columns. */
export function spanElements(pictures: readonly (readonly [entry: number, lines: number, columns: number])[]) {
  const out = new Float32Array(SPAN_ELEMENTS);
  for (const [at, [entry, lines, columns]] of pictures.entries()) out.set([entry, columns, lines, 0], at * 4);
  return out;
}

/** First elements of a head that a kernel rotates. @throws SplitkvError for what isn't a multiple of 8 up to all */
function rotaryOf(kernel: string, { headDim, rotary = headDim }: RotaryHeads): number {
  if (!Number.isInteger(rotary) || rotary < 0 || rotary > headDim || rotary % 8 !== 0) {
    throw usageError(`${kernel}: ${rotary} of ${headDim} elements are rotated; expected a multiple of 8 up to all`);
  }
  return rotary;
}

/** Of head_rope.wgsl. @throws as `rotaryOf` */
export const rotaryConstants = (kernel: string, heads: RotaryHeads) => {
  const { positions = 0, lines = 0, columns = 0, before } = heads.spans ?? {};
  const inTurn = before === undefined;
  return {
    ROTARY: rotaryOf(kernel, heads),
    QUERY_ROWS: heads.queryRows ?? false,
    SPANS: heads.spans ? ROPE_SPANS : 0,
    POSITIONS: positions,
    IN_TURN: inTurn,
    BEFORE: before ?? 0,
    LINE_PAIRS: inTurn ? 3 * lines : before + lines,
    COLUMN_PAIRS: inTurn ? 3 * columns : before + lines + columns,
  };
};

/** A piece of queryPieces brings, but with queriesOnly, the k and v heads of its query heads, behind them: its rows are [q][k][v]. */
export interface RopeAppendProblem extends CacheHeads, RotaryHeads, TableLayout, QueryPieces {
  /** That qkv has room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** RMS norm over each q and k head before RoPE (Qwen3). Without it q_norm and k_norm may be left unbound. */
  readonly qkNorm: boolean;
  /** With qkNorm: over each v head too, without weights. */
  readonly valueNorm?: boolean | undefined;
  readonly eps: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table words of a slot, or of a head of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of qkv. */
  readonly qkvStride: number;
  /**
   * Rows that travel to ranks that keep caches only. 'kept': keys are normalised and rotated in place too, also those that this rank
   * doesn't append. 'ready': they were, so keys and values are appended as they are and queries left alone; no norm, rope_table unread.
   */
  readonly keys?: 'kept' | 'ready' | undefined;
  /** Rows are q alone: nothing is appended. */
  readonly queriesOnly?: boolean;
}

/**
 * Normalises and rotates q (in place) and k, and appends k and v to the paged KV cache. A row whose block-table entry is NO_BLOCK
 * appends nothing: another rank holds its token.
 */
export const ropeAppend = defineKernel({
  name: 'rope_append',
  bindings: {
    qkv: 'read_write',
    rope_table: 'read',
    q_norm: 'read',
    k_norm: 'read',
    row_info: 'read',
    block_table: 'read',
    k_cache: 'read_write',
    v_cache: 'read_write',
  },
  params: {
    heads: 'u32',
    kv_heads: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    row_units: 'u32',
    ...PIECE_PARAMS,
    table_stride: 'u32',
    half_units: 'u32',
    eps: 'f32',
  },
  plan(problem: RopeAppendProblem, traits) {
    const { heads, kvHeads, headDim, qkvStride, keys, qkNorm, queriesOnly = false } = problem;
    const ready = keys === 'ready';
    if (ready && qkNorm) throw usageError('rope_append: keys that are ready were normalised before; leave qkNorm out');
    checkKvShape('rope_append', problem);
    const group = queryGroup('rope_append', heads, kvHeads);
    const pieces = piecesPlan('rope_append', problem, qkvStride, group);
    const widest = widestPiece(problem);
    const pairs = queriesOnly ? 0 : 2;
    const items = heads + pairs * kvHeads;
    checkStride('rope_append', 'qkvStride', qkvStride, (widest + (pairs * widest) / group) * headDim);
    // A software adapter walks a head by one thread, without a barrier.
    const lanes = traits.software ? 1 : headDim / 8;
    const headTile = traits.software ? 8 : Math.max(1, Math.floor(64 / lanes));
    return {
      wgsl: [
        ...kvWgsl(problem.kvType),
        ...kvStageWgsl,
        ...tableWgsl,
        ...piecesWgsl,
        steps,
        headNorm,
        headRope,
        rotate,
        source,
      ],
      constants: {
        ...kvConstants(problem),
        ...kvStage(problem.kvType, headTile * headDim),
        ...tableConstants(problem),
        ...pieces.constants,
        LANES: lanes,
        HEAD_TILE: headTile,
        QK_NORM: qkNorm,
        VALUE_NORM: qkNorm && (problem.valueNorm ?? false),
        KEEP_KEYS: keys === 'kept',
        READY: ready,
        QUERIES_ONLY: queriesOnly,
        ...rotaryConstants('rope_append', problem),
      },
      params: {
        heads,
        kv_heads: kvHeads,
        ...cacheHeads('rope_append', problem),
        row_units: qkvStride / 4,
        ...pieces.params,
        table_stride: problem.tableStride,
        half_units: headDim / 8,
        eps: problem.eps,
      },
      grid: (step) => [ceilDiv(ready ? 2 * kvHeads : items, headTile), step.rows, 1],
    };
  },
});
