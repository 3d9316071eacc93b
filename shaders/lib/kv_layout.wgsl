// The paged KV cache of a layer, in units of 4 consecutive dims:
//   K: [physical block][kv_head][stored units][BLOCK]   token-contiguous: neighbouring keys are neighbouring units
//   V: [physical block][kv_head][BLOCK][stored units]
// stored units = kv_stored_units(HEAD_UNITS): HEAD_UNITS, and in kv_q8.wgsl the scales behind them.
const HEAD_DIM: u32 = 64; // variant
const BLOCK: u32 = 16; // variant
const HEAD_UNITS: u32 = HEAD_DIM / 4u;
// Tokens of an attention chunk; chunk c belongs to merge lane c mod MERGE_LANES.
const CHUNK: u32 = 256u;
const MERGE_LANES: u32 = 8u;
// row_info.x of a padding row.
const INACTIVE: u32 = 0xffffffffu;
// Block-table entry of tokens whose cache this rank doesn't hold.
const NO_BLOCK: u32 = 0xffffffffu;

// Unit 0 of the key at `offset` in its block; the key's next unit is BLOCK further.
fn key_base(physical: u32, kv_heads: u32, kv_head: u32, offset: u32) -> u32 {
  return (physical * kv_heads + kv_head) * kv_stored_units(HEAD_UNITS) * BLOCK + offset;
}

// Unit 0 of the value at `offset` in its block; the value's next unit is 1 further.
fn value_base(physical: u32, kv_heads: u32, kv_head: u32, offset: u32) -> u32 {
  return ((physical * kv_heads + kv_head) * BLOCK + offset) * kv_stored_units(HEAD_UNITS);
}
