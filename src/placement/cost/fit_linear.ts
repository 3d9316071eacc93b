import { usageError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import type { LinearMeasure } from './measure.js';

/** One timed run. */
export interface LinearSample {
  /** Bytes of packed weights that are read, once however many rows share them. */
  readonly read: number;
  /** Those bytes times the rows that each is multiplied with. */
  readonly multiplied: number;
  readonly seconds: number;
}

/** The least relative error that a subset must win by, so that the simpler one is kept where they tie. */
const TIE = 1e-9;

/**
 * Fits seconds = fixedSeconds + read * secondsPerByte + multiplied * secondsPerByteRow, none of them negative, by least squares of
 * the relative errors. Give at least two sizes and two numbers of rows: what the samples can't tell apart is left at 0.
 * @throws SplitkvError `usage` without samples, or for one that isn't a positive time.
 */
export function fitLinear(samples: readonly LinearSample[]): LinearMeasure & { readonly fixedSeconds: number } {
  const bad = samples.find(
    ({ read, multiplied, seconds }) => !(read > 0 && multiplied > 0 && seconds > 0 && seconds < Infinity),
  );
  if (samples.length === 0 || bad) {
    throw usageError(
      `fitLinear: ${bad ? JSON.stringify(bad) : 'no samples'}; give timed projections with positive numbers`,
    );
  }
  // Each row divided by its time: the target is 1 everywhere. Columns in the order of the result.
  const columns = [
    samples.map(({ seconds }) => 1 / seconds),
    samples.map(({ read, seconds }) => read / seconds),
    samples.map(({ multiplied, seconds }) => multiplied / seconds),
  ];
  let best = { error: Infinity, values: [0, 0, 0] };
  for (const subset of [[1], [2], [0], [0, 1], [1, 2], [0, 2], [0, 1, 2]]) {
    const solution = leastSquares(subset.map((column) => columns[column]!));
    if (!solution || solution.some((value) => value < 0)) continue;
    const values = [0, 0, 0];
    for (const [i, column] of subset.entries()) values[column] = solution[i]!;
    const error = sum(
      samples.map((_, row) => (sum(values.map((value, column) => value * columns[column]![row]!)) - 1) ** 2),
    );
    if (error < best.error - TIE) best = { error, values };
  }
  const [fixedSeconds, secondsPerByte, secondsPerByteRow] = best.values as [number, number, number];
  return { fixedSeconds, secondsPerByte, secondsPerByteRow };
}

/** x of least |sum of x_i columns_i - 1|; undefined where the columns depend on each other. */
function leastSquares(columns: readonly (readonly number[])[]): number[] | undefined {
  const norms = columns.map((column) => Math.sqrt(sum(column.map((value) => value * value))));
  const unit = columns.map((column, i) => column.map((value) => value / norms[i]!));
  const dot = (a: readonly number[], b: readonly number[]): number => sum(a.map((value, i) => value * b[i]!));
  // Normal equations, augmented with the right-hand side; unit columns make 1 the largest entry.
  const rows = unit.map((a) => [...unit.map((b) => dot(a, b)), sum(a)]);
  const n = rows.length;
  for (let i = 0; i < n; i++) {
    const pivot = rows.findIndex(
      (row, r) => r >= i && Math.abs(row[i]!) === Math.max(...rows.slice(i).map((x) => Math.abs(x[i]!))),
    );
    [rows[i], rows[pivot]] = [rows[pivot]!, rows[i]!];
    const row = rows[i]!;
    if (Math.abs(row[i]!) < 1e-10) return undefined;
    for (const other of rows) {
      if (other === row) continue;
      const factor = other[i]! / row[i]!;
      for (let k = i; k <= n; k++) other[k]! -= factor * row[k]!;
    }
  }
  return rows.map((row, i) => row[n]! / row[i]! / norms[i]!);
}
