import { usageError } from '../../src/base/errors.js';
import tanhSource from '../lib/tanh.wgsl?raw';
import windowSource from '../lib/window.wgsl?raw';

/** Which keys a row attends to, and what becomes of its scores (lib/window.wgsl). */
export interface Attended {
  /** A row at position p sees the keys at p - slidingWindow + 1 to p. All up to p where left out. */
  readonly slidingWindow?: number;
  /** Scores s become softcap * tanh(s / softcap). As they are where left out. */
  readonly softcap?: number;
}

export const windowWgsl: readonly string[] = [tanhSource, windowSource];

/** Params of a kernel that takes window.wgsl. */
export const WINDOW_PARAMS = { window: 'u32', softcap: 'f32' } as const;

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
