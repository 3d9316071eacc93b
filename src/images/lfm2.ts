import { range } from '../base/lists.js';
import { type Idefics3Settings, type Tiles, tilesOf } from './idefics3.js';
import type { Picture } from './picture.js';
import { type PixelRange, qwenSize, rounded } from './sizes.js';
import { resize } from './resize.js';

/** What the processor's file says. */
export interface Lfm2Settings {
  /** Of a picture that isn't cut, and of the thumbnail of one that is. */
  readonly pixels: PixelRange;
  /** So many times as many at most, or it is cut. */
  readonly tolerance: number;
  /** Of a picture. */
  readonly tiles: readonly [least: number, most: number];
  readonly thumbnail: boolean;
}

/** The grid whose shape is the picture's, or nearly: of two that are as near the larger one, unless the picture is small for it. */
function gridOf({ width, height }: Picture, tile: number, [least, most]: readonly [number, number]) {
  let [best, nearest] = [[1, 1], Infinity];
  for (const area of range(least, most + 1)) {
    for (const columns of range(1, area + 1).filter((side) => area % side === 0)) {
      const distance = Math.abs(width / height - columns / (area / columns));
      const fills = width * height > 0.5 * tile ** 2 * area;
      if (distance < nearest || (distance === nearest && fills)) best = [columns, area / columns];
      nearest = Math.min(nearest, distance);
    }
  }
  return best;
}

/**
 * As transformers' Lfm2VlImageProcessor does it with Pillow: a picture of nearly its own size, or tiles row by row, then the whole of it.
 * `rows` 0: the whole alone. @param unit pixels of a row's side
 */
export function lfm2Tiles(picture: Picture, settings: Idefics3Settings & Lfm2Settings, unit: number): Tiles {
  const { pixels, tolerance, tile, filter } = settings;
  const whole = qwenSize(picture, unit, pixels, unit);
  const near = [picture.width, picture.height].map((side) => Math.max(unit / 2, rounded(side / unit) * unit));
  const isLarge = near[0]! * near[1]! > pixels[1] * tolerance;
  const [columns = 1, rows = 1] = isLarge && settings.splits ? gridOf(picture, tile, settings.tiles) : [1, 1];
  if (columns * rows === 1) return { tiles: [], whole, rows: 0, columns: 0 };
  const tiles = tilesOf(resize(picture, columns * tile, rows * tile, filter), tile, rows, columns);
  return { tiles, ...(settings.thumbnail && { whole }), rows, columns };
}

/** What stands in a prompt for a picture whose tiles have so many rows. */
export function lfm2Text({ rows, columns }: Pick<Tiles, 'rows' | 'columns'>, counts: readonly number[]): string {
  const cut = counts.map((count, at) => {
    const row = Math.floor(at / columns);
    const name = row < rows ? `img_row_${row + 1}_col_${(at % columns) + 1}` : 'img_thumbnail';
    return `${rows === 0 ? '' : `<|${name}|>`}${'<image>'.repeat(count)}`;
  });
  return `<|image_start|>${cut.join('')}<|image_end|>`;
}
