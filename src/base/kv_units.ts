/** The units in which sequences, their cache and attention are cut; the same in kernels, plans and the engine. */

/** Tokens of a chunk: the unit of split-KV work and of chunk ownership. */
export const CHUNK_TOKENS = 256;
/** Chunk c of a sequence is of merge lane c mod MERGE_LANES. */
export const MERGE_LANES = 8;

/**
 * The first lane that index `index` of `ranks` has of a sequence with this offset; every `ranks`th after it, below MERGE_LANES, is its
 * own, too. With more than MERGE_LANES ranks that may be none.
 */
export const firstLane = (ranks: number, index: number, offset: number): number =>
  (index + ranks - (offset % ranks)) % ranks;

/** Of lanes, or chunks, [0, end) with end up to MERGE_LANES: those in lanes `first`, `first + ranks`, ... */
const inTurn = (end: number, ranks: number, first: number): number => Math.max(0, Math.ceil((end - first) / ranks));

/** Of a sequence's first `chunks` chunks, those of a rank whose first lane is `first`. */
export const heldChunks = (chunks: number, ranks: number, first: number): number =>
  Math.floor(chunks / MERGE_LANES) * inTurn(MERGE_LANES, ranks, first) + inTurn(chunks % MERGE_LANES, ranks, first);

/** Most lanes that a rank has of a sequence's first `chunks` chunks, whatever the offset. */
export const mostLanes = (chunks: number, ranks: number): number => inTurn(Math.min(chunks, MERGE_LANES), ranks, 0);

/**
 * Lanes are merged in a binary tree, those half of them apart first (shaders/attention/attention_merge): whether ranks that share sequences
 * each hold a subtree of several, of which one state comes.
 */
export const joinsLanes = (ranks: number): boolean => ranks > 1 && ranks < MERGE_LANES && MERGE_LANES % ranks === 0;

/** Most last tokens of a prompt whose queries score its keys for compression. */
export const MAX_WINDOW = 256;
/** Tokens of a KV block: small enough that short sequences waste little, and it divides a chunk. */
export const KV_BLOCK = 64;
/** Position of a row that is inactive: nothing is read or written for it. */
export const INACTIVE = 0xffffffff;
/** Block-table entry of tokens whose cache this rank doesn't hold: nothing is appended for them, and nothing may attend to them here. */
export const NO_BLOCK = 0xffffffff;

/** Bits of a token's id in a row; above them stands the segment that it is of, where a text has several. */
export const SEGMENT_SHIFT = 24;
/** Ids from here on are no tokens': each is a row of a picture that the engine knows. */
export const GIVEN_ID = 2 ** 31;
