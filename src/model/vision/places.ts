import { range, sum } from '../../base/lists.js';
import { joinFloats } from '../../base/math.js';
import type { TensorReader } from '../../loader/index.js';
import { attentionOf, type ModelConfig } from '../config/model_config.js';
import { type Grid, patchesOf, type PlacesConfig, type VisionConfig } from '../config/vision_config.js';
import { ropeFrequencies } from '../layers/attention/rope_table.js';
import { placesTable } from './encoder_specs.js';

/** Rows of a table, and how much of each. */
type Shares = readonly (readonly [row: number, weight: number])[];

/** What a place of a line of `of` is made of the table's `side`. */
function sharesOf(at: number, of: number, { side, by }: PlacesConfig): Shares {
  const byCorners = by === 'corners';
  const stretch = byCorners ? 1 : Math.max(side / of, 1);
  const centre = byCorners ? (at * (side - 1)) / Math.max(1, of - 1) : ((at + 0.5) * side) / of - 0.5;
  const weights = range(0, side).map((row) => Math.max(0, 1 - Math.abs(row - centre) / stretch));
  const total = sum(weights);
  return weights.flatMap((weight, row) => (weight > 0 ? [[row, weight / total] as const] : []));
}

/**
 * Of an encoder's table the rows that its patches may have: of each of two tables the first ones. Undefined where there is none.
 * @throws SplitkvError as `TensorReader.expectTensor`
 */
export async function readPlaces(
  reader: TensorReader,
  vision: VisionConfig,
  signal: AbortSignal | undefined,
): Promise<Float32Array | undefined> {
  const { places } = vision;
  const table = placesTable(vision);
  if (!table || !places) return undefined;
  reader.expectTensor(table.name, table.shape);
  if (reader.isBlank) return undefined;
  const { side, by } = places;
  const [firsts, count] = by === 'axes' ? [[0, side], Math.min(side, patchesOf(vision))] : [[0], side ** 2];
  const read = firsts.map((first) => reader.readRows(table.name, first, first + count, { signal }));
  return joinFloats(await Promise.all(read));
}

/**
 * Places from a learned table, stretched over a grid with straight lines between, or of two tables: f32 [patches][width].
 * @param table what `readPlaces` reads
 * @param order of the patches (`patchOrder`)
 */
export function placeRows(
  table: Float32Array,
  places: PlacesConfig,
  width: number,
  [lines, columns]: Grid,
  order: readonly number[],
): Float32Array<ArrayBuffer> {
  const { side, by } = places;
  const out = new Float32Array(order.length * width);
  const made = new Float64Array(width);
  const half = table.length / width / 2;
  const along = (of: number): Shares[] => range(0, of).map((at) => (by === 'axes' ? [] : sharesOf(at, of, places)));
  const [down, across] = [along(lines), along(columns)];
  const sharesAt = (line: number, column: number): Shares =>
    by === 'axes'
      ? [column, half + line].map((place) => [place, 1] as const)
      : down[line]!.flatMap(([y, high]) => across[column]!.map(([x, wide]) => [y * side + x, high * wide] as const));
  for (const [row, at] of order.entries()) {
    if (at < 0) continue;
    made.fill(0);
    for (const [place, weight] of sharesAt(Math.floor(at / columns), at % columns))
      for (let i = 0; i < width; i++) made[i]! += weight * table[place * width + i]!;
    out.set(made, row * width);
  }
  return out;
}

/** In place of a rope table's rows: (cos, sin) by patch, of which the first half of the pairs turn by its line, the others by its column. */
export function turns(tower: ModelConfig, [, columns]: Grid, order: readonly number[]): Float32Array<ArrayBuffer> {
  const { rope, headDim } = attentionOf(tower, 'gqa');
  const dims = headDim / 2;
  const frequencies = ropeFrequencies({ ...rope!, dims }, 0);
  const angles = order
    .filter((at) => at >= 0)
    .flatMap((at) =>
      [Math.floor(at / columns), at % columns].flatMap((place) => [...frequencies].map((each) => place * each)),
    );
  return Float32Array.from(angles.flatMap((angle) => [Math.cos(angle), Math.sin(angle)]));
}
