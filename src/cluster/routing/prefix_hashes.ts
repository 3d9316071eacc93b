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
