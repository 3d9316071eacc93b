import type { VisionConfig } from '../config/vision_config.js';

/** Of normalised pixels f32 [side][side][3], row by row: what `encode` takes, [patch][channel][y][x]. */
export function patchRows(
  pixels: Float32Array,
  { image, patch }: Pick<VisionConfig, 'image' | 'patch'>,
  order: readonly number[],
): Float32Array<ArrayBuffer> {
  const side = Math.floor(image / patch);
  const out = new Float32Array(order.length * 3 * patch * patch);
  let to = 0;
  for (const at of order) {
    const [top, left] = [Math.floor(at / side) * patch, (at % side) * patch];
    for (let channel = 0; channel < 3; channel++) {
      for (let y = 0; y < patch; y++) {
        for (let x = 0; x < patch; x++) out[to++] = pixels[((top + y) * image + left + x) * 3 + channel]!;
      }
    }
  }
  return out;
}
