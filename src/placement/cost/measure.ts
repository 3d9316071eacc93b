/**
 * What the planner knows of a machine: measured numbers, none of them assumed. Measure with the kernels, the weight and cache types
 * and the shapes of the model that is planned, after a warm-up, and take medians. An adapter on which a piece of work is done by
 * the CPU and one that waits for memory look alike here: both are seconds a byte, found by `fitLinear`.
 */

/** Projections of one role of row: seconds = bytes of packed weights * (secondsPerByte + rows * secondsPerByteRow). */
export interface LinearMeasure {
  /** Reading and unpacking a weight, however many rows share it. */
  readonly secondsPerByte: number;
  /** What each row adds. */
  readonly secondsPerByteRow: number;
}

/** One rank's adapter, measured while the others are idle. */
export interface AdapterMeasure {
  /** For people. */
  readonly name: string;
  /** Bytes that a model may take here; left out where unknown. */
  readonly budgetBytes?: number | undefined;
  /** `linear` at 1 and at 8 rows, with the model's largest matrix and one a quarter of it; `fitLinear` of those times. */
  readonly generated: LinearMeasure;
  /** `linear_tiled` at 16 rows and at a full prompt chunk, with the same matrices; `fitLinear` of those times. */
  readonly prompt: LinearMeasure;
  /**
   * Attention of generated rows (split and merge), seconds a row, kv head (with all its query heads) and cached token: time over
   * rows * kv heads * length, at a length of several chunks. MLA: a row and cached token, for all heads.
   */
  readonly generatedAttention: number;
  /** The same of prompt rows: time over kv heads * the sum over rows of the tokens each sees. */
  readonly promptAttention: number;
  /** What one more dispatch adds to a long recorded pass of tiny dependent ones, in seconds; `fitLinear` finds it too. */
  readonly dispatchSeconds: number;
  /** What one more step adds to a run of steps submitted without waiting, each with next to nothing in it, in seconds. */
  readonly submitSeconds: number;
}

/** One direction of a link. */
export interface HopMeasure {
  /** An exchange of a few bytes, from before the sender's submit until the receiver's next submit may follow, in seconds. */
  readonly latencySeconds: number;
  /** Size over (time - latency) of an exchange of some MiB. */
  readonly bytesPerSecond: number;
}

export interface MachineMeasure {
  /** By rank. Plans use the first ranks, so the fastest comes first. */
  readonly ranks: readonly AdapterMeasure[];
  /** hops[to][from]; a rank's hop to itself is never read. */
  readonly hops: readonly (readonly (HopMeasure | undefined)[])[];
  /**
   * slowdown[n - 1]: time of a piece of work on n of the ranks at once over its time on one. 1 for separate GPUs; n for n virtual
   * ranks of one device; between them for software adapters, which share the CPU's cores.
   */
  readonly slowdown: readonly number[];
}

export const linearSeconds = (measure: LinearMeasure, bytes: number, rows: number): number =>
  rows === 0 ? 0 : bytes * (measure.secondsPerByte + rows * measure.secondsPerByteRow);
