/**
 * What changes from prompt to prompt, u32 [4], written by the host before the step that ends a prompt is run:
 *   (row of the step that is the window's first, tokens of the prompt, slot, entries that a head keeps beside the window on average)
 * The window, the last rows of the prompt, lies in that step as a whole; nothing of the sequence was evicted before.
 */
export const COMPRESS_INFO_WORDS = 4;

export interface CompressInfo {
  readonly firstRow: number;
  /** Tokens of the prompt, more than the window. */
  readonly length: number;
  readonly slot: number;
  /** Entries beside the window: at most length - window. */
  readonly base: number;
}

export const compressInfo = ({ firstRow, length, slot, base }: CompressInfo): Uint32Array<ArrayBuffer> =>
  Uint32Array.of(firstRow, length, slot, base);
