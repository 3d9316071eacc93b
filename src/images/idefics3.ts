import { range } from '../base/lists.js';
import { alignUp } from '../base/math.js';
import { crop, type Picture } from './picture.js';
import { type Filter, resize } from './resize.js';

/** What preprocessor_config.json says. */
export interface Idefics3Settings {
  /** Of a tile's side, in pixels. */
  readonly tile: number;
  /** What the longer edge becomes, also where it is shorter. */
  readonly longestEdge: number;
  readonly splits: boolean;
  readonly filter: Filter;
}

type Size = readonly [width: number, height: number];

/** The tiles of a picture row by row, then the whole of it; `rows` 0: the whole alone. */
export interface Tiles {
  readonly tiles: readonly Picture[];
  /** What the whole of it is still to be resized to, behind them. */
  readonly whole?: Size;
  readonly rows: number;
  readonly columns: number;
}

/** No edge is longer, whatever is asked for. */
const MOST = 4096;

/** The other edge keeps the ratio, and is even. */
function longestTo([width, height]: Size, edge: number): Size {
  const ratio = width / height;
  const even = (side: number): number => Math.max(1, alignUp(Math.trunc(side), 2));
  const [wide, high]: Size = width >= height ? [edge, even(edge / ratio)] : [even(edge * ratio), edge];
  if (Math.max(wide, high) <= MOST) return [wide, high];
  const now = wide / high;
  return wide >= high ? [MOST, Math.max(1, Math.trunc(MOST / now))] : [Math.max(1, Math.trunc(MOST * now)), MOST];
}

/** Both edges are multiples of the tile's, so that the ratio isn't quite kept. */
function wholeTiles([width, height]: Size, tile: number): Size {
  const ratio = width / height;
  if (width >= height) {
    const wide = alignUp(width, tile);
    return [wide, alignUp(Math.trunc(wide / ratio), tile)];
  }
  const high = alignUp(height, tile);
  return [alignUp(Math.trunc(high * ratio), tile), high];
}

/** As transformers' Idefics3ImageProcessor does it with Pillow. */
export function idefics3Tiles(picture: Picture, { tile, longestEdge, splits, filter }: Idefics3Settings): Tiles {
  const first = longestTo([picture.width, picture.height], longestEdge);
  const sized = resize(picture, ...first, filter);
  if (!splits) return { tiles: [resize(sized, tile, tile, filter)], rows: 0, columns: 0 };
  const cut = resize(sized, ...wholeTiles(first, tile), filter);
  if (cut.width <= tile && cut.height <= tile) return { tiles: [cut], rows: 0, columns: 0 };
  const [rows, columns] = [cut.height / tile, cut.width / tile];
  return { tiles: [...tilesOf(cut, tile, rows, columns), resize(cut, tile, tile, filter)], rows, columns };
}

/** Row by row. */
export const tilesOf = (picture: Picture, tile: number, rows: number, columns: number): Picture[] =>
  range(0, rows * columns).map((at) =>
    crop(picture, (at % columns) * tile, Math.floor(at / columns) * tile, tile, tile),
  );

/** What stands in a prompt for a picture: each tile has as many placeholders. */
export function idefics3Text(
  { rows, columns }: Pick<Tiles, 'rows' | 'columns'>,
  [count = 0]: readonly number[],
): string {
  const [fake, image] = ['<fake_token_around_image>', '<image>'.repeat(count)];
  const whole = `${fake}<global-img>${image}${fake}`;
  if (rows === 0) return whole;
  const lines = range(1, rows + 1).map(
    (row) =>
      `${range(1, columns + 1)
        .map((column) => `${fake}<row_${row}_col_${column}>${image}`)
        .join('')}\n`,
  );
  return `${lines.join('')}\n${whole}`;
}
