import { usageError } from '../base/errors.js';
import type { Picture } from './picture.js';

/**
 * As transformers' Gemma4ImageProcessor sizes pictures: the largest sides that are multiples of `unit`, keep the ratio, and make `rows` rows at
 * most; smaller pictures are enlarged.
 * @throws SplitkvError `usage` for one that is far too long
 */
export function gemma4Size(
  { width, height }: Pick<Picture, 'width' | 'height'>,
  unit: number,
  rows: number,
): [width: number, height: number] {
  const factor = Math.sqrt((rows * unit ** 2) / (width * height));
  const units = [width, height].map((side) => Math.floor((factor * side) / unit)) as [number, number];
  if (units[0] === 0) units.splice(0, 2, 1, Math.min(rows, Math.floor(height / width)));
  else if (units[1] === 0) units.splice(0, 2, Math.min(rows, Math.floor(width / height)), 1);
  if (units[0] * units[1] > rows || units[0] * units[1] === 0)
    throw usageError(`an image of ${width} x ${height} pixels: one side is too long for ${rows} rows; cut it`);
  return [units[0] * unit, units[1] * unit];
}

/** What stands in a prompt for a picture of `count` rows. */
export const gemma4Text = (count: number): string => `<|image>${'<|image|>'.repeat(count)}<image|>`;
