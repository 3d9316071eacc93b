import { usageError } from '../../base/errors.js';

/**
 * Where a prompt step that could go on to `end` ends, so that the step that ends the prompt has its whole window: steps before it stop
 * short of the window. Where a prompt is cut changes no bit.
 */
export const endBeforeWindow = (end: number, length: number, window: number): number =>
  end < length ? Math.min(end, Math.max(length - window, 0)) : end;

/** @throws SplitkvError `usage` when steps of `promptRows` rows can't hold a window. */
export function checkWindowFits(window: number, promptRows: number): void {
  if (window <= promptRows) return;
  throw usageError(
    `kvWindow ${window}: a prompt step has room for ${promptRows} rows; use a window of at most that, or a larger prefillChunk`,
  );
}
