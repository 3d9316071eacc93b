import { usageError } from '../../src/base/errors.js';
import tanhSource from '../lib/tanh.wgsl?raw';
import sinksSource from '../lib/sinks.wgsl?raw';
import runsSource from '../lib/runs.wgsl?raw';
import windowSource from '../lib/window.wgsl?raw';

/** Which keys a row attends to, and what becomes of its scores (lib/window.wgsl), or stands beside them (lib/sinks.wgsl). */
export interface Attended {
  /** A row at position p sees the keys at p - slidingWindow + 1 to p. All up to p where left out. */
  readonly slidingWindow?: number;
  /** Scores s become softcap * tanh(s / softcap). As they are where left out. */
  readonly softcap?: number;
  /** Of prompt rows: some see keys behind them, too, in a window as many as before them. None where left out. */
  readonly runs?: Runs;
  /** A row's queries carry a sink a head behind q, k and v: a logit of its softmax without a value. None where left out. */
  readonly sinks?: boolean;
}

/** Rows that see all of the run that they are of (lib/runs.wgsl); a step has one of a sequence at most, and it whole. */
export interface Runs {
  /** Of a run; at least those of any where a sequence is one. */
  readonly rows: number;
  /** Where chunk_offsets has the runs' ends, u32 [slots]: positions, 0 where a step has none. */
  readonly ends: number;
  /** Of one sequence that is a run: a row sees what lies between bounds of its own, u32 [positions][2] behind the end. They ascend. */
  readonly bounded?: true | undefined;
}

export const windowWgsl: readonly string[] = [tanhSource, windowSource];
/** Behind `windowWgsl`, of kernels that run prompt rows. */
export const runsWgsl: readonly string[] = [runsSource];
/** Beside `windowWgsl` and softmax_state.wgsl, of kernels that make states of queries. */
export const sinksWgsl: readonly string[] = [sinksSource];

/** Params of a kernel that takes window.wgsl. */
export const WINDOW_PARAMS = { window: 'u32', softcap: 'f32' } as const;
/** Params of a kernel that takes runs.wgsl. */
export const RUN_PARAMS = { run_rows: 'u32', run_ends: 'u32' } as const;
/** Params of a kernel that takes sinks.wgsl. */
export const SINK_PARAMS = { sink_skip: 'u32' } as const;

/** @throws SplitkvError for a window without keys. Returns the constants and params of window.wgsl. */
export function windowPlan(kernel: string, { slidingWindow: window, softcap }: Attended) {
  if (window !== undefined && (!Number.isInteger(window) || window < 1)) {
    throw usageError(`${kernel}: a window of ${window} keys; expected an integer of at least 1`);
  }
  if (softcap !== undefined && !(softcap > 0 && softcap < Infinity)) {
    throw usageError(`${kernel}: softcap ${softcap}; expected a positive number`);
  }
  return {
    constants: { WINDOWED: window !== undefined, CAPPED: softcap !== undefined },
    params: { window: Math.min(window ?? 0, 2 ** 31), softcap: softcap ?? 0 },
  };
}

/** The same of kernels that run prompt rows, and of runs.wgsl. */
export function promptPlan(kernel: string, attended: Attended) {
  const { constants, params } = windowPlan(kernel, attended);
  const { runs } = attended;
  return {
    constants: { ...constants, BOTH_WAYS: runs !== undefined, BOUNDED: runs?.bounded === true },
    params: { ...params, run_rows: runs?.rows ?? 0, run_ends: runs?.ends ?? 0 },
  };
}

/** What sinks.wgsl is told of `group` query heads of a kv head. */
export const sinkPlan = ({ sinks = false, headDim }: Attended & { readonly headDim: number }, group: number) => ({
  constants: { SINKS: sinks },
  params: { sink_skip: (group + 2) * headDim },
});

/** Elements that a row of queries has at least, for `heads` query heads of which `group` share a kv head. */
export const queryElements = (
  { sinks = false, headDim }: Attended & { readonly headDim: number },
  heads: number,
  group: number,
): number => (sinks ? (heads / group) * ((group + 2) * headDim + group) : heads * headDim);
