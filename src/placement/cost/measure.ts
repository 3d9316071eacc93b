import { usageError } from '../../base/errors.js';
import { nth, sum } from '../../base/lists.js';

/**
 * What the planner knows of a machine: measured numbers, none of them assumed. They are of a model: taken with its own forward
 * program, in its weight and cache types, on a few of its layers, after a warm-up. An adapter on which a piece of work is done by
 * the CPU and one that waits for memory look alike here: both are seconds a byte, found by `fitLinear`.
 */

/** Projections of some rows: seconds = bytes of packed weights * (secondsPerByte + rows * secondsPerByteRow). */
export interface LinearMeasure {
  /** Reading and unpacking a weight, however many rows share it. */
  readonly secondsPerByte: number;
  /** What each row adds. */
  readonly secondsPerByteRow: number;
}

/** A layer for rows of one role: its projections, and with them whatever grows as they do (norms, rotation, SwiGLU). */
export interface RowsMeasure extends LinearMeasure {
  /** What a layer takes besides, however little a rank holds of it. */
  readonly layerSeconds: number;
  /** Attention: seconds a row, kv head (with all its query heads) and token that it sees. MLA: a row and token, for all heads. */
  readonly attention: number;
}

export interface LayerMeasure {
  readonly generated: RowsMeasure;
  readonly prompt: RowsMeasure;
}

/** One rank's adapter, measured while the others are idle. */
export interface AdapterMeasure {
  /** For people. */
  readonly name: string;
  /** Bytes that a model may take here; left out where unknown. */
  readonly budgetBytes?: number | undefined;
  /** A layer with a dense MLP, and one with routed experts: those that the model has. */
  readonly dense?: LayerMeasure | undefined;
  readonly expert?: LayerMeasure | undefined;
  /** The output head, which runs as a generated row. */
  readonly head: LinearMeasure;
  /** What one more dispatch adds to a recorded pass of tiny dependent ones. */
  readonly dispatchSeconds: number;
  /** What one more step adds to a run of steps submitted without waiting, each with next to nothing in it. */
  readonly submitSeconds: number;
  /** From the end of a step's work until the host knows of it. */
  readonly waitSeconds: number;
}

export interface LinkMeasure {
  /**
   * What an exchange of a few bytes adds to the work before it: from when the slower of the two ranks has finished until both can
   * go on.
   */
  readonly latencySeconds: number;
  /** Size over (time - latency) of an exchange of some MiB. */
  readonly bytesPerSecond: number;
}

export interface MachineMeasure {
  /** By rank. Plans use the first ranks, so the fastest comes first. */
  readonly ranks: readonly AdapterMeasure[];
  /** links[to][from]; a rank's link to itself is never read. */
  readonly links: readonly (readonly (LinkMeasure | undefined)[])[];
  /** crowding[n - 1]: latency of an exchange among n ranks at once over that of the slowest pair of them. */
  readonly crowding: readonly number[];
  /** By role: what working side by side costs. */
  readonly slowdown: { readonly generated: Slowdown; readonly prompt: Slowdown };
}

/**
 * slowdown[n - 1]: time of a piece of work on n of the ranks at once over its time on one. 1 for separate GPUs; n for n virtual
 * ranks of one device; between them for software adapters, which share the CPU's cores.
 */
export type Slowdown = readonly number[];

export const linearSeconds = (measure: LinearMeasure, bytes: number, rows: number): number =>
  rows === 0 ? 0 : bytes * (measure.secondsPerByte + rows * measure.secondsPerByteRow);

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
  // Each row divided by its time: the target is 1 everywhere.
  const columns = {
    fixedSeconds: samples.map(({ seconds }) => 1 / seconds),
    secondsPerByte: samples.map(({ read, seconds }) => read / seconds),
    secondsPerByteRow: samples.map(({ multiplied, seconds }) => multiplied / seconds),
  };
  const none = { fixedSeconds: 0, secondsPerByte: 0, secondsPerByteRow: 0 };
  let best = { error: Infinity, fit: none };
  for (const subset of SUBSETS) {
    const solution = leastSquares(subset.map((name) => columns[name]));
    if (!solution || solution.some((value) => value < 0)) continue;
    const fit = { ...none, ...Object.fromEntries(subset.map((name, i) => [name, solution[i]])) };
    const terms = Object.entries(columns).map(([name, column]) =>
      column.map((value) => fit[name as keyof typeof fit] * value),
    );
    const error = sum(samples.map((_, row) => (sum(terms.map((term) => term[row] ?? 0)) - 1) ** 2));
    if (error < best.error - TIE) best = { error, fit };
  }
  return best.fit;
}

/** What may be told apart, the simpler first. */
const SUBSETS = [
  ['secondsPerByte'],
  ['secondsPerByteRow'],
  ['fixedSeconds'],
  ['fixedSeconds', 'secondsPerByte'],
  ['secondsPerByte', 'secondsPerByteRow'],
  ['fixedSeconds', 'secondsPerByteRow'],
  ['fixedSeconds', 'secondsPerByte', 'secondsPerByteRow'],
] as const;

/** x of least |sum of x_i columns_i - 1|; undefined where the columns depend on each other. */
function leastSquares(columns: readonly (readonly number[])[]): number[] | undefined {
  const dot = (a: readonly number[], b: readonly number[]): number => sum(a.map((value, i) => value * nth(b, i)));
  const norms = columns.map((column) => Math.sqrt(dot(column, column)));
  const unit = columns.map((column, i) => column.map((value) => value / nth(norms, i)));
  // Normal equations, each with its right-hand side; unit columns make 1 the largest entry.
  const found = solve(unit.map((a) => [...unit.map((b) => dot(a, b)), sum(a)]));
  return found?.map((x, i) => x / nth(norms, i));
}

/** x of rows [a_1, ..., a_n, b] with sum of a_i x_i = b; undefined where the rows depend on each other. */
function solve(rows: readonly (readonly number[])[]): number[] | undefined {
  const [pivot, ...others] = rows.toSorted(([a = 0], [b = 0]) => Math.abs(b) - Math.abs(a));
  if (!pivot) return [];
  const [lead = 0, ...tail] = pivot;
  if (Math.abs(lead) < 1e-10) return undefined;
  const below = others.map(([first = 0, ...own]) => own.map((value, i) => value - (first / lead) * nth(tail, i)));
  const rest = solve(below);
  return rest && [rest.reduce((left, x, i) => left - x * nth(tail, i), nth(tail, rest.length)) / lead, ...rest];
}
