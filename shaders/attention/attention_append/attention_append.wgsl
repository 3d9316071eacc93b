// A generated row's attention on a rank that keeps its whole sequence, in one: rope_append's norm, rotation and append, then
// attention_split's softmax state of one 256-token chunk, for a tile of a kv head's query heads. For hardware adapters; the same bits
// as those two.
//
//   q, k = rotate(norm(q)), rotate(norm(k))          norm with QK_NORM, of v with VALUE_NORM, as in rope_append
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t      t in the chunk, t <= position
//   window.wgsl: t from first_seen on, s capped; sinks.wgsl: of the last chunk, each head's sink beside the scores
//
// qkv          [rows][row_units*4] f32: heads q vectors, kv_heads k, kv_heads v of HEAD_DIM each, and with SINKS a sink a head; not rotated, and left so
// rope_table   [position][ROTARY/2] (cos, sin) f32, or [position][k, q][ROTARY/2], then spans (head_rope.wgsl); not read where ROTARY is 0
// q_norm       [HEAD_DIM] f32, k_norm the same; read only with QK_NORM
// row_info     [rows] (position, slot); rows of one step are of different slots
// block_table  [slot][table_stride], see kv_table.wgsl; only blocks of entries that are attended to are read
// k_cache, v_cache   see kv_layout.wgsl, KvUnit; of cache_kv_heads heads, attended to are kv_heads from first_kv_head on. The entry at
//              the row's position is written, and not read
// partial_o    [rows][heads][max_chunks][HEAD_DIM] f32, unnormalised
// partial_ml   [rows][heads][max_chunks] (m, l) f32, natural log, scale applied
//
// Grid (chunks, kv heads * tiles, rows): a workgroup = one (chunk, HEAD_TILE query heads of a kv head, row), as in
// lib/attend_chunk.wgsl. Each rotates its own queries. Those of the row's last chunk round its key and value as the cache has them,
// attend to these, and the first tile appends them: no workgroup waits for what another writes.
// Chunks beyond the row's keys or before its window and inactive rows: nothing is written.
const QK_NORM: bool = true; // variant
const VALUE_NORM: bool = false; // variant
const HALF_UNITS: u32 = HEAD_UNITS / 2u;
// Threads of a vector.
const LANES: u32 = HALF_UNITS;
// Of a tile: its queries, then the key, then the value. A thread has two units of one.
const VECTORS: u32 = HEAD_TILE + 2u;
// kv_stored_units(HEAD_UNITS).
const STORED: u32 = 17; // variant

struct Params {
  heads: u32,
  kv_heads: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  row_units: u32,
  max_chunks: u32,
  table_stride: u32,
  // Query heads of a kv head.
  group: u32,
  // HEAD_UNITS, its half, LANES and STATS as counts that compilers don't unroll.
  head_units: u32,
  half_units: u32,
  lanes: u32,
  stats: u32,
  eps: f32,
  scale: f32,
  // See window.wgsl.
  window: u32,
  softcap: f32,
  // See sinks.wgsl.
  sink_skip: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> rope_table: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> q_norm: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> k_norm: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> block_table: array<u32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<KvUnit>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<KvUnit>;
@group(0) @binding(8) var<storage, read_write> partial_o: array<vec4<f32>>;
@group(0) @binding(9) var<storage, read_write> partial_ml: array<vec2<f32>>;
@group(0) @binding(10) var<uniform> params: Params;

var<workgroup> squares: array<f32, VECTORS * HALF_UNITS>;
// The row's key as the cache will have it, then its value.
var<workgroup> newest: array<KvUnit, 2u * STORED>;
// The tokens of the chunk from here on have its value: its own, beyond which weights are 0; and the thread's unit of it.
var<private> newest_from: u32 = CHUNK;
var<private> newest_value: vec4<f32> = vec4<f32>();

fn row_sink(row: u32, head: u32) -> f32 {
  let at = sink_at(row * params.row_units, params.heads, head);
  return qkv[at / 4u][at % 4u];
}

// The tile's queries lie in slice_o until the first sums of slices.
fn query(at: u32, unit: u32) -> vec4<f32> {
  return slice_o[at + unit];
}

// 4 dims of the vector that begins at `at` of `newest`.
fn newest_dims(at: u32, unit: u32) -> vec4<f32> {
  return kv_unpack(newest[at + unit], kv_scale(newest[at + kv_scale_unit(HEAD_UNITS, unit)], unit));
}

fn newest_key(unit: u32) -> vec4<f32> {
  return newest_dims(0u, unit);
}

fn weighed_value(cached: vec4<f32>, token: u32) -> vec4<f32> {
  return select(cached, newest_value, token >= newest_from);
}

// Unit 0 in a row of qkv of one of the tile's vectors; a tile beyond the group has its last head again.
fn vector_unit(vector: u32, kv_head: u32, tile: u32) -> u32 {
  let head = kv_head * params.group + min(tile + vector, params.group - 1u);
  let pair = params.heads + kv_head + select(0u, params.kv_heads, vector > HEAD_TILE);
  return select(pair, head, vector < HEAD_TILE) * HEAD_UNITS;
}

// Leaves the tile's queries in slice_o, and the key and value in `newest`. In uniform control flow.
fn stage_vectors(row: u32, info: vec2<u32>, kv_head: u32, tile: u32, thread: u32) {
  let vector = thread / HALF_UNITS;
  let lane = thread % HALF_UNITS;
  let base = row * params.row_units + vector_unit(min(vector, VECTORS - 1u), kv_head, tile);
  let units = pair_units(lane);
  var low = qkv[base + units.x];
  var high = qkv[base + units.y];
  if (QK_NORM) {
    if (vector < VECTORS) {
      squares[thread] = head_squares(base, lane);
    }
    workgroupBarrier();
    var total = 0.0;
    let own = min(vector, VECTORS - 1u) * LANES;
    for (var left = select(params.lanes, LANES, UNROLLED); left >= 1u; left--) {
      total += squares[own + LANES - left];
    }
    let inverse = head_inverse(total);
    if (vector < HEAD_TILE) {
      low = (low * inverse) * q_norm[units.x];
      high = (high * inverse) * q_norm[units.y];
    } else if (vector == HEAD_TILE) {
      low = (low * inverse) * k_norm[units.x];
      high = (high * inverse) * k_norm[units.y];
    } else if (VALUE_NORM) {
      low *= inverse;
      high *= inverse;
    }
  }
  if (vector <= HEAD_TILE && rotates(lane)) {
    let rotated = turn(low, high, rope_positions(info), lane, vector < HEAD_TILE);
    low = rotated.low;
    high = rotated.high;
  }
  let pair = vector - HEAD_TILE;
  if (vector < HEAD_TILE) {
    slice_o[vector * HEAD_UNITS + units.x] = low;
    slice_o[vector * HEAD_UNITS + units.y] = high;
  } else if (vector < VECTORS) {
    if (KV_SCALED) {
      kv_staged[pair * HEAD_UNITS + units.x] = low;
      kv_staged[pair * HEAD_UNITS + units.y] = high;
    } else {
      newest[pair * STORED + units.x] = kv_pack(low, 1.0);
      newest[pair * STORED + units.y] = kv_pack(high, 1.0);
    }
  }
  workgroupBarrier();
  if (KV_SCALED) {
    let which = thread / STORED;
    let unit = thread % STORED;
    if (which < 2u) {
      newest[thread] = kv_staged_unit(which * HEAD_UNITS, HEAD_UNITS, unit);
    }
    workgroupBarrier();
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let tiles = (params.group + HEAD_TILE - 1u) / HEAD_TILE;
  let kv_head = group_id.y / tiles;
  let tile = group_id.y % tiles * HEAD_TILE;
  let cache_kv_head = params.first_kv_head + kv_head;
  let row = group_id.z;
  let info = row_info[row];
  let first = group_id.x * CHUNK;
  if (info.x == INACTIVE || first > info.x) {
    return;
  }
  let is_last = info.x - first < CHUNK;
  let count = select(CHUNK, info.x - first + 1u, is_last);
  let skip = unseen(first, info.x);
  if (WINDOWED && skip >= count) {
    return;
  }
  let table = head_table(info.y, cache_kv_head);
  let chunk = Chunk(table, cache_kv_head, first, skip, count, select(count, count - 1u, is_last));
  let early = first_values(chunk, thread);
  stage_vectors(row, info, kv_head, tile, thread);

  if (is_last) {
    newest_from = select(0u, count - 1u, has_cached(chunk));
    newest_value = newest_dims(STORED, thread % HEAD_UNITS);
    if (tile == 0u && thread < STORED) {
      let physical = entry_block(table, info.x / BLOCK);
      let key = key_base(physical, block_heads(), block_head(cache_kv_head), info.x % BLOCK);
      let value = value_base(physical, block_heads(), block_head(cache_kv_head), info.x % BLOCK);
      k_cache[key + thread * BLOCK] = newest[thread];
      v_cache[value + thread] = newest[STORED + thread];
    }
  }
  let queries = vec4<u32>(0u, 1u, 2u, 3u) % HEAD_TILE * HEAD_UNITS;
  let partial = (row * params.heads + kv_head * params.group + tile) * params.max_chunks + group_id.x;
  var sinks = vec4<f32>(EMPTY_M);
  if (SINKS && is_last) {
    let heads = min(vec4<u32>(tile) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.group - 1u));
    sinks = row_sinks(row, vec4<u32>(kv_head * params.group) + heads);
  }
  attend_chunk(chunk, early, queries, sinks, partial, min(HEAD_TILE, params.group - tile), thread);
}
