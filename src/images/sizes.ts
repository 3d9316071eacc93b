import { usageError } from '../base/errors.js';
import type { Picture } from './picture.js';

/** Pixels of a picture, at least and at most. */
export type PixelRange = readonly [least: number, most: number];

/** Longer sides are refused, as they are there. */
const MOST_RATIO = 200;

/** To the nearest, halves to the even one. */
export function rounded(value: number): number {
  const below = Math.floor(value);
  const part = value - below;
  return part > 0.5 || (part === 0.5 && below % 2 === 1) ? below + 1 : below;
}

/**
 * As transformers' Qwen2VLImageProcessor sizes pictures (`smart_resize`): sides that are multiples of `unit`, as alike as may be.
 * @param shortest of sides that are rounded: with it pictures may be as long as they are, as LFM2-VL's
 * @throws SplitkvError `usage` for one that is far too long
 */
export function qwenSize(
  { width, height }: Pick<Picture, 'width' | 'height'>,
  unit: number,
  [least, most]: PixelRange,
  shortest = 0,
): [width: number, height: number] {
  if (shortest === 0 && Math.max(width, height) > MOST_RATIO * Math.min(width, height))
    throw usageError(
      `an image of ${width} x ${height} pixels: this model takes sides up to ${MOST_RATIO} times as long as the other; cut it`,
    );
  const sides = [width, height] as const;
  const near = sides.map((side) => Math.max(shortest, rounded(side / unit) * unit)) as [number, number];
  const pixels = near[0] * near[1];
  if (pixels > most) {
    const shrink = Math.sqrt((width * height) / most);
    return sides.map((side) => Math.max(unit, Math.floor(side / shrink / unit) * unit)) as [number, number];
  }
  if (pixels >= least) return near;
  const grow = Math.sqrt(least / (width * height));
  return sides.map((side) => Math.ceil((side * grow) / unit) * unit) as [number, number];
}

/**
 * As transformers' Gemma4ImageProcessor sizes them: the largest sides that are multiples of `unit`, keep the ratio and make `rows` rows at
 * most, also of smaller pictures.
 * @throws SplitkvError `usage` for one that is far too long
 */
export function gemma4Size(
  { width, height }: Pick<Picture, 'width' | 'height'>,
  unit: number,
  rows: number,
): [width: number, height: number] {
  const factor = Math.sqrt((rows * unit ** 2) / (width * height));
  let [wide, high] = [Math.floor((factor * width) / unit), Math.floor((factor * height) / unit)];
  if (wide === 0) [wide, high] = [1, Math.min(rows, Math.floor(height / width))];
  else if (high === 0) [wide, high] = [Math.min(rows, Math.floor(width / height)), 1];
  return [wide * unit, high * unit];
}
