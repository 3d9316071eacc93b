// Moves the entries that a head keeps to the front of its own blocks, in order, and notes how many are gone: what follows is
// appended behind them, and blocks at the end are free.
//
//   entry i of head h = what was entry kept(h, i),  i < kept_lengths(h);   evicted(h) = length - kept_lengths(h)
//   kept ascends, so entry i comes from i or behind it: a tile is read before any of it is written, and never needed afterwards.
//
// kept           [kv heads][score_stride] u32, ascending
// kept_lengths   [kv heads] u32
// compress_info  (-, length, slot, -), see compress_info.ts
// block_table    see kv_table.wgsl, of heads; nothing is evicted yet. Its blocks stay as they are. A head without any is left alone
// k_cache, v_cache  see kv_layout.wgsl, KvUnit; blocks of one head
//
// Grid (ceil(stored units / UNITS), kv heads, 2): a workgroup = UNITS units (4 dims each; scales are units as well) of a head's keys (z = 0) or values (z = 1),
// TILE entries at a time, a thread each.
// Variants, by the adapter: TILE 1 for software adapters (no barrier); UNITS * TILE <= 256.
const TILE: u32 = 64; // variant
const UNITS: u32 = 4; // variant
const THREADS: u32 = TILE * UNITS;

struct Params {
  score_stride: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  table_stride: u32,
}

@group(0) @binding(0) var<storage, read> kept: array<u32>;
@group(0) @binding(1) var<storage, read> kept_lengths: array<u32>;
@group(0) @binding(2) var<storage, read> compress_info: array<u32>;
@group(0) @binding(3) var<storage, read_write> block_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<KvUnit>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<KvUnit>;
@group(0) @binding(6) var<uniform> params: Params;

fn key_at(table: u32, entry: u32, unit: u32) -> u32 {
  return key_base(entry_block(table, entry / BLOCK), 1u, 0u, entry % BLOCK) + unit * BLOCK;
}

fn value_at(table: u32, entry: u32, unit: u32) -> u32 {
  return value_base(entry_block(table, entry / BLOCK), 1u, 0u, entry % BLOCK) + unit;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group_id.y;
  let table = head_table(compress_info[2], params.first_kv_head + head);
  let count = kept_lengths[head];
  let from_head = head * params.score_stride;
  let is_value = group_id.z == 1u;
  // Neighbouring threads take what neighbours in memory: entries of a key's unit, units of a value's entry.
  let unit = group_id.x * UNITS + select(thread / TILE, thread % UNITS, is_value);
  let place = select(thread % TILE, thread / UNITS, is_value);
  // A copied head's sequence may be with another rank, which moves its entries.
  let holds = holds_chunk(table, 0u);

  var to = place;
  for (var tiles = steps(0u, count, TILE); tiles > 0u; tiles--) {
    let moves = holds && to < count && unit < kv_stored_units(HEAD_UNITS);
    var moved = KvUnit();
    if (moves) {
      let source = kept[from_head + to];
      if (is_value) {
        moved = v_cache[value_at(table, source, unit)];
      } else {
        moved = k_cache[key_at(table, source, unit)];
      }
    }
    if (TILE > 1u) {
      storageBarrier();
    }
    if (moves) {
      if (is_value) {
        v_cache[value_at(table, to, unit)] = moved;
      } else {
        k_cache[key_at(table, to, unit)] = moved;
      }
    }
    if (TILE > 1u) {
      storageBarrier();
    }
    to += TILE;
  }
  if (holds && thread == 0u && group_id.x == 0u && !is_value) {
    block_table[table] = compress_info[1] - count;
  }
}
