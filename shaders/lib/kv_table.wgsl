// Where the entries of a sequence's cache lie: its block table. The kernel declares block_table: array<u32>, and the params
// table_stride and cache_kv_heads.
//
//   else       [slot][table_stride]: physical block of each BLOCK entries. A block holds all cache_kv_heads heads; entry = position.
//   PER_HEAD   [slot][cache_kv_heads][table_stride]: how many entries of the head were evicted, then the physical blocks of those
//              that are left. A block holds one head, so heads of different lengths take different numbers of blocks. The token
//              at a position becomes entry (position - evicted); evicted entries were before it.
//
// Variant: PER_HEAD, for caches that are compressed head by head.
const PER_HEAD: bool = false; // variant

// The table of a head of a slot's sequence, by its first word.
fn head_table(slot: u32, cache_head: u32) -> u32 {
  if (PER_HEAD) {
    return (slot * params.cache_kv_heads + cache_head) * params.table_stride;
  }
  return slot * params.table_stride;
}

// Position minus entry of what comes next.
fn evicted_entries(table: u32) -> u32 {
  if (PER_HEAD) {
    return block_table[table];
  }
  return 0u;
}

// The physical block of entries [index * BLOCK, (index + 1) * BLOCK).
fn entry_block(table: u32, index: u32) -> u32 {
  if (PER_HEAD) {
    return block_table[table + 1u + index];
  }
  return block_table[table + index];
}

// Heads that a block holds, and which of them is meant.
fn block_heads() -> u32 {
  if (PER_HEAD) {
    return 1u;
  }
  return params.cache_kv_heads;
}

fn block_head(cache_head: u32) -> u32 {
  if (PER_HEAD) {
    return 0u;
  }
  return cache_head;
}
