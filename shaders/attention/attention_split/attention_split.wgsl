// Split-KV attention of generated rows: the softmax state of one 256-token chunk of this rank, for a tile of a kv head's query
// heads; for hardware adapters.
//
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t      t in the chunk, t <= last
//   last = position - evicted: the row's own entry (kv_table.wgsl); chunks are of entries. window.wgsl: t from first_seen on, s capped
//   sinks.wgsl: of the last chunk, each head's sink beside the scores
//
// q            [rows][q_units*4] f32, head h at h * HEAD_DIM; or in pieces (query_pieces.wgsl), which cut no kv head's query heads
// k_cache, v_cache   see kv_layout.wgsl, KvUnit; of cache_kv_heads heads, attended to are those from first_kv_head on
// row_info     [rows] (position, slot)
// block_table  see kv_table.wgsl; only blocks of entries that are attended to are read
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences
// partial_o    [rows][heads][max_chunks][HEAD_DIM] f32, unnormalised; of this rank's local chunks (share.wgsl)
// partial_ml   [rows][heads][max_chunks] (m, l) f32, natural log, scale applied
//
// Grid (local chunks, kv heads * tiles, rows): a workgroup = one (chunk, HEAD_TILE query heads of a kv head, row), as in
// lib/attend_chunk.wgsl.
// Chunks beyond the row's keys or before its window, those of another rank (kv_holes.wgsl) and inactive rows: nothing is written.
struct Params {
  heads: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  q_units: u32,
  // See query_pieces.wgsl.
  piece_units: u32,
  piece_1: u32,
  piece_2: u32,
  piece_3: u32,
  piece_4: u32,
  piece_5: u32,
  piece_6: u32,
  piece_7: u32,
  max_chunks: u32,
  table_stride: u32,
  share_ranks: u32,
  share_index: u32,
  // Query heads of a kv head.
  group: u32,
  // HEAD_UNITS and STATS as counts that compilers don't unroll.
  head_units: u32,
  stats: u32,
  scale: f32,
  // See window.wgsl.
  window: u32,
  softcap: f32,
  // See sinks.wgsl.
  sink_skip: u32,
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<KvUnit>;
@group(0) @binding(2) var<storage, read> v_cache: array<KvUnit>;
@group(0) @binding(3) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read> chunk_offsets: array<u32>;
@group(0) @binding(6) var<storage, read_write> partial_o: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> partial_ml: array<vec2<f32>>;
@group(0) @binding(8) var<uniform> params: Params;

fn row_sink(row: u32, head: u32) -> f32 {
  let piece = query_piece(head);
  let at = sink_at(piece.base + row * params.q_units, piece.end - piece.start, head - piece.start);
  return q[at / 4u][at % 4u];
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn query(at: u32, unit: u32) -> vec4<f32> {
  return q[at + unit];
}

fn newest_key(unit: u32) -> vec4<f32> {
  return vec4<f32>();
}

fn weighed_value(cached: vec4<f32>, token: u32) -> vec4<f32> {
  return cached;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let tiles = (params.group + HEAD_TILE - 1u) / HEAD_TILE;
  let kv_head = group_id.y / tiles;
  let tile = group_id.y % tiles * HEAD_TILE;
  let cache_kv_head = params.first_kv_head + kv_head;
  let row = group_id.z;
  let info = row_info[row];
  if (info.x == INACTIVE) {
    return;
  }
  let table = head_table(info.y, cache_kv_head);
  let last = info.x - evicted_entries(table);
  let first = own_chunk(info.y, group_id.x) * CHUNK;
  if (first > last) {
    return;
  }
  if (!holds_chunk(table, first / CHUNK)) {
    return;
  }
  let count = min(CHUNK, last - first + 1u);
  let skip = unseen(first, last);
  if (WINDOWED && skip >= count) {
    return;
  }

  let chunk = Chunk(table, cache_kv_head, first, skip, count, count);
  let early = first_values(chunk, thread);
  let own = query_unit(row, params.q_units, kv_head * params.group, HEAD_UNITS);
  // A tile beyond the group computes its last head again, and doesn't write it.
  let tile_heads = min(vec4<u32>(tile) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.group - 1u));
  let partial = (row * params.heads + kv_head * params.group + tile) * params.max_chunks + group_id.x;
  var sinks = vec4<f32>(EMPTY_M);
  if (SINKS && last - first < CHUNK) {
    sinks = row_sinks(row, vec4<u32>(kv_head * params.group) + tile_heads);
  }
  let queries = vec4<u32>(own) + tile_heads * HEAD_UNITS;
  attend_chunk(chunk, early, queries, sinks, partial, min(HEAD_TILE, params.group - tile), thread);
}
