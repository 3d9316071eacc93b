import type { Grid, VisionConfig } from '../config/vision_config.js';

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
