import { usageError } from '../../src/base/errors.js';
import tanhSource from '../lib/tanh.wgsl?raw';
import sinksSource from '../lib/sinks.wgsl?raw';
import textEndSource from '../lib/text_end.wgsl?raw';
import windowSource from '../lib/window.wgsl?raw';

/** Which keys a row attends to, and what becomes of its scores (lib/window.wgsl), or stands beside them (lib/sinks.wgsl). */
export interface Attended {
  /** A row at position p sees the keys at p - slidingWindow + 1 to p. All up to p where left out. */
  readonly slidingWindow?: number;
  /** Scores s become softcap * tanh(s / softcap). As they are where left out. */
  readonly softcap?: number;
  /** Of prompt rows, which are a whole text: a row sees the keys behind it, too, all or as many as before it. */
  readonly bothWays?: boolean;
  /** A row's queries carry a sink a head behind q, k and v: a logit of its softmax without a value. None where left out. */
  readonly sinks?: boolean;
}

export const windowWgsl: readonly string[] = [tanhSource, windowSource];
/** Beside `windowWgsl`, of kernels that run prompt rows. */
export const bothWaysWgsl: readonly string[] = [textEndSource];
/** Beside `windowWgsl` and softmax_state.wgsl, of kernels that make states of queries. */
export const sinksWgsl: readonly string[] = [sinksSource];

/** Params of a kernel that takes window.wgsl. */
export const WINDOW_PARAMS = { window: 'u32', softcap: 'f32' } as const;
/** Params of a kernel that takes sinks.wgsl. */
export const SINK_PARAMS = { sink_skip: 'u32' } as const;

/** @throws SplitkvError for a window without keys. Returns the constants and params of window.wgsl. */
export function windowPlan(kernel: string, { slidingWindow: window, softcap, bothWays = false }: Attended) {
  if (window !== undefined && (!Number.isInteger(window) || window < 1)) {
    throw usageError(`${kernel}: a window of ${window} keys; expected an integer of at least 1`);
  }
  if (softcap !== undefined && !(softcap > 0 && softcap < Infinity)) {
    throw usageError(`${kernel}: softcap ${softcap}; expected a positive number`);
  }
  return {
    constants: { WINDOWED: window !== undefined, CAPPED: softcap !== undefined, BOTH_WAYS: bothWays },
    params: { window: Math.min(window ?? 0, 2 ** 31), softcap: softcap ?? 0 },
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
