/** The units in which sequences, their cache and attention are cut; the same in kernels, plans and the engine. */

/** Tokens of a chunk: the unit of split-KV work and of chunk ownership. */
export const CHUNK_TOKENS = 256;
/** Chunk c of a sequence is of merge lane c mod MERGE_LANES. */
export const MERGE_LANES = 8;
/** Tokens of a KV block: small enough that short sequences waste little, and it divides a chunk. */
export const KV_BLOCK = 64;
/** Position of a row that is inactive: nothing is read or written for it. */
export const INACTIVE = 0xffffffff;
/** Block-table entry of tokens whose cache this rank doesn't hold: nothing is appended for them, and nothing may attend to them here. */
export const NO_BLOCK = 0xffffffff;
