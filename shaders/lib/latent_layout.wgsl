// The paged latent cache of an MLA layer, in units of 4 consecutive elements (see KvUnit):
//   [physical block][stored units][BLOCK]   token-contiguous: neighbouring tokens are neighbouring units
// A token has R + rope elements: the normalised latent c_t (R, which is the value as well), then the rotated k_pe (rope).
// key_units = (R + rope) / 4; stored units = kv_stored_units(key_units): in kv_q8.wgsl the scales follow. Where R is a multiple of
// 32, no scale is shared by latent and key.
const BLOCK: u32 = 16; // variant
// Tokens of an attention chunk; chunk c belongs to merge lane c mod MERGE_LANES.
const CHUNK: u32 = 256u;
const MERGE_LANES: u32 = 8u;
// row_info.x of a padding row.
const INACTIVE: u32 = 0xffffffffu;
// Block-table entry of tokens whose cache this rank doesn't hold.
const NO_BLOCK: u32 = 0xffffffffu;

// Unit 0 of the token at `offset` in its block; the token's next unit is BLOCK further.
fn latent_base(physical: u32, key_units: u32, offset: u32) -> u32 {
  return physical * kv_stored_units(key_units) * BLOCK + offset;
}
