import { usageError } from '../../src/base/errors.js';
import queryPieces from '../lib/query_pieces.wgsl?raw';

/** Pieces that queries may come in: a rank attends for that many weight groups at most. */
const MAX_QUERY_PIECES = 8;

/** How a rank's queries lie that come from several. */
export interface QueryPieces {
  /**
   * Heads of each piece, 1 to 8 pieces in the order of their heads; some may be empty. Rows of a piece start with its heads, and pieces
   * lie behind one another: [piece][rows][stride], where the problem's rows count. One piece with all heads where left out.
   */
  readonly queryPieces?: readonly number[];
}

/** Params of query_pieces.wgsl, beside heads. */
export const PIECE_PARAMS = {
  piece_units: 'u32',
  piece_1: 'u32',
  piece_2: 'u32',
  piece_3: 'u32',
  piece_4: 'u32',
  piece_5: 'u32',
  piece_6: 'u32',
  piece_7: 'u32',
} as const;

/** WGSL of a kernel that reads queries in pieces; it declares the variant of `piecesPlan`. */
export const piecesWgsl: readonly string[] = [queryPieces];

/** Heads of the largest piece. */
export const widestPiece = ({ heads, queryPieces = [heads] }: QueryPieces & { readonly heads: number }): number =>
  Math.max(...queryPieces);

/**
 * The constants and params of query_pieces.wgsl. `stride`: elements from row to row; `group`: query heads of a kv head, which no piece
 * may cut.
 * @throws SplitkvError when the pieces aren't the heads
 */
export function piecesPlan(
  kernel: string,
  { heads, rows, queryPieces: pieces = [heads] }: QueryPieces & { readonly heads: number; readonly rows: number },
  stride: number,
  group = 1,
): {
  readonly constants: { readonly PIECES: boolean };
  readonly params: { readonly [K in keyof typeof PIECE_PARAMS]: number };
} {
  const isHeads = (count: number): boolean => Number.isInteger(count) && count >= 0 && count % group === 0;
  const sum = pieces.reduce((total, count) => total + count, 0);
  if (pieces.length < 1 || pieces.length > MAX_QUERY_PIECES || !pieces.every(isHeads) || sum !== heads) {
    const whole = group > 1 ? `, each a multiple of the ${group} that share a kv head` : '';
    throw usageError(
      `${kernel}: queryPieces ${JSON.stringify(pieces)}; expected 1 to ${MAX_QUERY_PIECES} numbers of heads that add up to ` +
        `${heads}${whole}`,
    );
  }
  // Where piece p > 0 starts.
  const start = (piece: number): number => pieces.slice(0, piece).reduce((total, count) => total + count, 0);
  return {
    constants: { PIECES: pieces.length > 1 },
    params: {
      piece_units: (rows * stride) / 4,
      piece_1: start(1),
      piece_2: start(2),
      piece_3: start(3),
      piece_4: start(4),
      piece_5: start(5),
      piece_6: start(6),
      piece_7: start(7),
    },
  };
}
