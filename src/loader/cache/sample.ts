import { hashName } from './opfs.js';
import type { Source } from '../source.js';

const HEAD_BYTES = 64 * 1024;
const BLOCK_BYTES = 16 * 1024;
const BLOCKS = 16;

/**
 * A text that differs, very likely, where the file does: of its size, its first 64 KiB, its end and 16 blocks in between. For
 * servers that send neither ETag nor Last-Modified; costs 17 small requests for a file of more than 64 KiB.
 */
export async function fingerprint(
  source: Source,
  file: string,
  size: number,
  signal: AbortSignal | undefined,
): Promise<string> {
  const parts: Promise<Uint8Array<ArrayBuffer>>[] = [source.read(file, 0, Math.min(size, HEAD_BYTES), signal)];
  if (size > HEAD_BYTES) {
    for (let block = 1; block <= BLOCKS + 1; block++) {
      // The last one is the end of the file.
      const start = Math.max(0, Math.floor(((size - BLOCK_BYTES) * block) / (BLOCKS + 1)));
      parts.push(source.read(file, start, Math.min(size, start + BLOCK_BYTES), signal));
    }
  }
  const blocks = await Promise.all(parts);
  const text = [String(size), ...(await Promise.all(blocks.map((bytes) => hashName(bytes, 64))))].join(' ');
  return `sampled ${await hashName(text)}`;
}

/** `count` short ranges of a file at random, spread evenly over [0, size); fewer that are all of it where it is small. */
export function randomBlocks(size: number, count: number): (readonly [start: number, end: number])[] {
  const blocks = Math.min(count, Math.ceil(size / BLOCK_BYTES));
  return Array.from({ length: blocks }, (_, index) => {
    const low = Math.floor((size * index) / blocks);
    const high = Math.floor((size * (index + 1)) / blocks);
    const start = low + Math.floor(Math.random() * Math.max(0, high - low - BLOCK_BYTES + 1));
    return [start, Math.min(size, high, start + BLOCK_BYTES)] as const;
  }).filter(([start, end]) => end > start);
}
