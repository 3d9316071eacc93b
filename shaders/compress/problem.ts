import { usageError } from '../../src/base/errors.js';
import { MAX_WINDOW } from '../../src/base/kv_units.js';
import type { DeviceTraits } from '../../src/gpu/device.js';
import type { StepShape } from '../../src/gpu/kernel.js';

/** Bytes and lengths that the kernels of a compression have in common. */
export interface SelectionProblem {
  /** f32 elements from head to head of the scores, and u32 of the kept entries: at least the tokens of a prompt. */
  readonly scoreStride: number;
  /** The last tokens of the prompt, whose queries score and which are always kept. */
  readonly window: number;
}

/** @throws SplitkvError for a window that no kernel takes. */
export function checkWindow(kernel: string, window: number): void {
  if (!Number.isInteger(window) || window < 1 || window > MAX_WINDOW) {
    throw usageError(`${kernel}: a window of ${window} tokens; expected an integer from 1 to ${MAX_WINDOW}`);
  }
}

/** Grids of a compression are empty in a step without rows of the prompt, say of a rank that holds other sequences. */
export const promptSteps = ({ rows }: StepShape): 0 | 1 => (rows > 0 ? 1 : 0);

/** Radix digits that top_k.wgsl walks: 4 of a key, 4 of an item. */
export const TOP_K_DIGITS = 8;

/** Invocations of a workgroup that walks a whole list. Software adapters pay for each at every barrier. */
export const listThreads = ({ software }: DeviceTraits): number => (software ? 16 : 256);
