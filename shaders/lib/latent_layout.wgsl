// The paged latent cache of an MLA layer, in units of 4 consecutive elements (see KvUnit):
//   [physical block][stored units][BLOCK]   token-contiguous: neighbouring tokens are neighbouring units
// A token has R + rope elements: the normalised latent c_t (R, which is the value as well) with its scales behind it (kv_q8.wgsl),
// then the rotated k_pe (rope), which a cache in bytes keeps in f16: scores follow it more closely than any other 8 bits.
const BLOCK: u32 = 16; // variant
// Tokens of an attention chunk; chunk c belongs to merge lane c mod MERGE_LANES.
const CHUNK: u32 = 256u;
const MERGE_LANES: u32 = 8u;
// row_info.x of a padding row.
const INACTIVE: u32 = 0xffffffffu;
// Block-table entry of tokens whose cache this rank doesn't hold.
const NO_BLOCK: u32 = 0xffffffffu;

// The unit of the token that begins 4 elements of its k_pe.
fn latent_key_unit(rank_units: u32, unit: u32) -> u32 {
  return kv_stored_units(rank_units) + kv_wide_units(unit);
}

// Unit 0 of the token at `offset` in its block; the token's next unit is BLOCK further.
fn latent_base(physical: u32, rank_units: u32, rope_units: u32, offset: u32) -> u32 {
  return physical * latent_key_unit(rank_units, rope_units) * BLOCK + offset;
}
