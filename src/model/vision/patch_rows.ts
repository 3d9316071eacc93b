import type { CutSettings } from '../../images/cuts.js';
import type { Picture } from '../../images/picture.js';
import { type Grid, patchGrid, patchOrder, type VisionConfig } from '../config/vision_config.js';

/**
 * A tile's pixels f32 [lines][width][3], normalised as the encoder takes them, and what `encode` takes: patches and their grid.
 */
export function tilePatches(
  { data, width, height }: Picture,
  vision: VisionConfig,
  { mean, deviation }: Pick<CutSettings, 'mean' | 'deviation'>,
) {
  const pixels = new Float32Array(data.length);
  for (const [channel, middle] of mean.entries()) {
    for (let at = channel; at < data.length; at += 3) pixels[at] = (data[at]! / 255 - middle) / deviation[channel]!;
  }
  const grid: Grid = vision.places ? [height / vision.patch, width / vision.patch] : patchGrid(vision);
  return { pixels, grid, patches: patchRows(pixels, vision, width, grid, patchOrder(vision, grid)) };
}

/** Of normalised pixels f32 [lines][width][3]: what `encode` takes of a grid of patches, [patch][channel][y][x]. */
export function patchRows(
  pixels: Float32Array,
  { patch }: Pick<VisionConfig, 'patch'>,
  width: number,
  [, columns]: Grid,
  order: readonly number[],
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(order.length * 3 * patch * patch);
  for (const [row, at] of order.entries()) {
    if (at < 0) continue;
    let to = row * 3 * patch * patch;
    const [top, left] = [Math.floor(at / columns) * patch, (at % columns) * patch];
    for (let channel = 0; channel < 3; channel++) {
      for (let y = 0; y < patch; y++) {
        for (let x = 0; x < patch; x++) out[to++] = pixels[((top + y) * width + left + x) * 3 + channel]!;
      }
    }
  }
  return out;
}
