import { attentionOf, type ModelConfig } from '../config/model_config.js';
import type { Grid } from '../config/vision_config.js';
import { ropeFrequencies } from '../layers/attention/rope_table.js';

/**
 * A learned table of side by side places stretched over a grid, corner upon corner, with straight lines between: f32 [patches][width].
 * @param order of the patches (`patchOrder`)
 */
export function placeRows(
  table: Float32Array,
  side: number,
  [lines, columns]: Grid,
  order: readonly number[],
): Float32Array<ArrayBuffer> {
  const width = table.length / side ** 2;
  const out = new Float32Array(order.length * width);
  const coordinate = (at: number, of: number) => {
    const place = of === 1 ? 0 : (at * (side - 1)) / (of - 1);
    const first = Math.floor(place);
    return { first, next: Math.min(first + 1, side - 1), part: place - first };
  };
  for (const [row, at] of order.entries()) {
    const y = coordinate(Math.floor(at / columns), lines);
    const x = coordinate(at % columns, columns);
    const corners = [
      [y.first, x.first, (1 - y.part) * (1 - x.part)],
      [y.first, x.next, (1 - y.part) * x.part],
      [y.next, x.first, y.part * (1 - x.part)],
      [y.next, x.next, y.part * x.part],
    ] as const;
    for (let i = 0; i < width; i++) {
      let sum = 0;
      for (const [line, column, weight] of corners) sum += weight * table[(line * side + column) * width + i]!;
      out[row * width + i] = sum;
    }
  }
  return out;
}

/** In place of a rope table's rows: (cos, sin) by patch, of which the first half of the pairs turn by its line, the others by its column. */
export function turns(tower: ModelConfig, [, columns]: Grid, order: readonly number[]): Float32Array<ArrayBuffer> {
  const { rope, headDim } = attentionOf(tower, 'gqa');
  const dims = headDim / 2;
  const frequencies = ropeFrequencies({ ...rope!, dims }, 0);
  const angles = order.flatMap((at) =>
    [Math.floor(at / columns), at % columns].flatMap((place) => [...frequencies].map((each) => place * each)),
  );
  return Float32Array.from(angles.flatMap((angle) => [Math.cos(angle), Math.sin(angle)]));
}
