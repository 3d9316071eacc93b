import { range, sum } from '../../base/lists.js';
import { attentionOf, type ModelConfig } from '../config/model_config.js';
import type { Grid, PlacesConfig } from '../config/vision_config.js';
import { ropeFrequencies } from '../layers/attention/rope_table.js';

/** What a place of a line of `of` is made of the table's `side`: their weights. */
function weightsOf(at: number, of: number, { side, by }: PlacesConfig): number[] {
  if (by === 'corners') {
    const place = of === 1 ? 0 : (at * (side - 1)) / (of - 1);
    return range(0, side).map((each) => Math.max(0, 1 - Math.abs(place - each)));
  }
  const stretch = Math.max(side / of, 1);
  const raw = range(0, side).map((each) => Math.max(0, 1 - Math.abs(each + 0.5 - ((at + 0.5) * side) / of) / stretch));
  const total = sum(raw);
  return raw.map((weight) => weight / total);
}

/**
 * A learned table of side by side places stretched over a grid, with straight lines between: f32 [patches][width].
 * @param order of the patches (`patchOrder`)
 */
export function placeRows(
  table: Float32Array,
  places: PlacesConfig,
  [lines, columns]: Grid,
  order: readonly number[],
): Float32Array<ArrayBuffer> {
  const { side } = places;
  const width = table.length / side ** 2;
  const out = new Float32Array(order.length * width);
  const made = new Float64Array(width);
  const [down, across] = [lines, columns].map((of) => range(0, of).map((at) => weightsOf(at, of, places))) as [
    number[][],
    number[][],
  ];
  for (const [row, at] of order.entries()) {
    made.fill(0);
    for (const [line, high] of down[Math.floor(at / columns)]!.entries()) {
      if (high === 0) continue;
      for (const [column, wide] of across[at % columns]!.entries()) {
        if (wide === 0) continue;
        const first = (line * side + column) * width;
        for (let i = 0; i < width; i++) made[i]! += high * wide * table[first + i]!;
      }
    }
    out.set(made, row * width);
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
