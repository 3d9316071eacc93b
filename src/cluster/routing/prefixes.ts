import { formatError } from '../../base/errors.js';

/** Characters (UTF-16 units) of a block: about 64 tokens of English, the engine's block. */
export const BLOCK_CHARACTERS = 256;
/** Blocks of a request that are looked at: a million characters. */
const MOST_BLOCKS = 4096;

/**
 * Hashes of a text's beginnings: the first says what the first block is, each further one what all blocks up to its own are, the
 * last one what the text is (its block may be shorter). Two texts have as many in common as blocks of their beginnings are equal.
 *
 * What is hashed is what the prompt is made of, in the prompt's order, with what grows last: `JSON.stringify([model, tools,
 * messages])`. A gateway needs no tokenizer for it.
 */
export function prefixHashes(text: string): Uint32Array {
  const blocks = Math.min(MOST_BLOCKS, Math.ceil(text.length / BLOCK_CHARACTERS));
  const hashes = new Uint32Array(blocks);
  let hash = START;
  for (let block = 0; block < blocks; block++) {
    hash = added(hash, text, block * BLOCK_CHARACTERS, Math.min(text.length, (block + 1) * BLOCK_CHARACTERS));
    hashes[block] = mixed(hash);
  }
  return hashes;
}

export const hashOfText = (text: string): number => mixed(added(START, text, 0, text.length));

const START = 0x811c9dc5;

/** FNV-1a over UTF-16 units. */
function added(start: number, text: string, from: number, to: number): number {
  let hash = start;
  for (let at = from; at < to; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash;
}

/** Every bit of the result depends on every bit given (the last step of MurmurHash3). */
export function mixed(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Blocks from the first on that somebody has. */
function matchedIn(prefix: Uint32Array, has: (hash: number) => boolean): number {
  const first = prefix.findIndex((hash) => !has(hash));
  return first < 0 ? prefix.length : first;
}

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
    return matchedIn(prefix, (hash) => this.has(hash));
  }
}

/**
 * A replica's own list of the prefixes that its cache should have: those of the requests that it took, the ones used longest ago
 * forgotten first, ends before beginnings.
 */
export class PrefixRecord {
  /** Last used last. As signed numbers, which take no memory of their own in a set. */
  readonly #blocks = new Set<number>();

  /** @param capacity blocks that the cache has room for; more than MOST_BLOCKS_TOLD are kept but not told */
  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.#blocks.size;
  }

  /** Blocks of a prefix, from its first on, that are here. */
  matched(prefix: Uint32Array): number {
    return matchedIn(prefix, (hash) => this.#blocks.has(hash | 0));
  }

  use(prefix: Uint32Array): void {
    // The first is used last, so that a prefix loses its end before its beginning, without which the end is of no use.
    for (let at = Math.min(prefix.length, this.capacity) - 1; at >= 0; at--) {
      this.#blocks.delete(prefix[at]! | 0);
      this.#blocks.add(prefix[at]! | 0);
    }
    let over = this.#blocks.size - this.capacity;
    for (const block of this.#blocks) {
      if (over-- <= 0) break;
      this.#blocks.delete(block);
    }
  }

  clear(): void {
    this.#blocks.clear();
  }

  /** What is told: the blocks used last, as many as fit. */
  filter(): PrefixFilter {
    const told = Math.min(this.size, MOST_BLOCKS_TOLD);
    const filter = PrefixFilter.forBlocks(told);
    let older = this.size - told;
    for (const block of this.#blocks) if (older-- <= 0) filter.add(block);
    return filter;
  }
}
