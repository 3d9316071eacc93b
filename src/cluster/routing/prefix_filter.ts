import { formatError } from '../../base/errors.js';

/** Bytes of a filter: a power of two in this range. */
const FEWEST_BYTES = 1024;
export const MOST_BYTES = 8192;
/** A filter is at least this large for each block in it, and each block sets so many bits of it. */
const BITS_PER_BLOCK = 10;
const PROBES = 7;
/** Blocks that the largest filter has room for. */
export const MOST_BLOCKS_TOLD = Math.floor((MOST_BYTES * 8) / BITS_PER_BLOCK);

/**
 * A set of prefix hashes in at most 8 kB (a Bloom filter): what a replica tells of its cache. It has all that was added, and of
 * others takes fewer than one in a hundred for its own. Those cost little: the next block of the same prefix would have to be taken
 * for its own, too, and no more than the policy's bound is staked on what is found.
 */
export class PrefixFilter {
  readonly #bits: Uint32Array;
  readonly #mask: number;

  private constructor(bits: Uint32Array) {
    this.#bits = bits;
    this.#mask = bits.length * 32 - 1;
  }

  /** With room for so many blocks; beyond MOST_BLOCKS_TOLD it would be wrong more often. */
  static forBlocks(blocks: number): PrefixFilter {
    let bytes = FEWEST_BYTES;
    while (bytes < MOST_BYTES && bytes * 8 < blocks * BITS_PER_BLOCK) bytes *= 2;
    return new PrefixFilter(new Uint32Array(bytes / 4));
  }

  /** @throws SplitkvError `format` for bytes that are no filter */
  static fromBytes(bytes: Uint8Array): PrefixFilter {
    const { length } = bytes;
    if (length < FEWEST_BYTES || length > MOST_BYTES || (length & (length - 1)) !== 0) {
      throw formatError(
        `a prefix filter of ${length} bytes: expected a power of two from ${FEWEST_BYTES} to ${MOST_BYTES}`,
      );
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, length);
    return new PrefixFilter(Uint32Array.from({ length: length / 4 }, (_, index) => view.getUint32(index * 4, true)));
  }

  /** Little endian, whatever the machine. */
  toBytes(): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(this.#bits.length * 4);
    const view = new DataView(bytes.buffer);
    for (const [index, word] of this.#bits.entries()) view.setUint32(index * 4, word, true);
    return bytes;
  }

  copy(): PrefixFilter {
    return new PrefixFilter(this.#bits.slice());
  }

  add(hash: number): void {
    const step = (hash >>> 16) | 1;
    for (let probe = 0, at = hash; probe < PROBES; probe++, at += step) {
      const bit = at & this.#mask;
      this.#bits[bit >>> 5]! |= 1 << (bit & 31);
    }
  }

  has(hash: number): boolean {
    const step = (hash >>> 16) | 1;
    for (let probe = 0, at = hash; probe < PROBES; probe++, at += step) {
      const bit = at & this.#mask;
      if ((this.#bits[bit >>> 5]! & (1 << (bit & 31))) === 0) return false;
    }
    return true;
  }

  /** Blocks of a prefix, from its first on, that are in the set. */
  matched(prefix: Uint32Array): number {
    let count = 0;
    while (count < prefix.length && this.has(prefix[count]!)) count++;
    return count;
  }
}
