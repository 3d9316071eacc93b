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

/** One direction of a link. */
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
