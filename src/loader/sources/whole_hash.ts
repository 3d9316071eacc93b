import { sha256 } from '@noble/hashes/sha2.js';
import { throwIfAborted } from '../../base/errors.js';
import { toHex } from '../../base/math.js';
import type { Source } from '../source.js';

/** Bytes hashed in one go: the thread is free again in between. */
const STEP_BYTES = 4 * 1024 * 1024;

/** SHA-256 of a file whose pieces come in any order: those in turn are hashed as they come, the others are read again. */
export class WholeHash {
  readonly #hash = sha256.create();
  /** The piece that is in turn. */
  next = 0;

  add(piece: number, bytes: Uint8Array): void {
    if (piece !== this.next) return;
    this.#hash.update(bytes);
    this.next++;
  }

  /** In hex. The hash takes no more after it. */
  digest(): string {
    return toHex(this.#hash.digest());
  }
}

/** SHA-256 of a whole file in hex, reading all of it. */
export async function hashFile(
  source: Source,
  file: string,
  size: number,
  onBytes: (done: number) => void = () => {},
  signal?: AbortSignal,
): Promise<string> {
  const hash = new WholeHash();
  for (let piece = 0, at = 0; at < size; piece++, at += STEP_BYTES) {
    throwIfAborted(signal, `checking ${file}`);
    const end = Math.min(size, at + STEP_BYTES);
    hash.add(piece, await source.read(file, at, end, signal));
    onBytes(end);
  }
  return hash.digest();
}
