// Split-KV attention of generated rows: the softmax state of one 256-token chunk of this rank, for all query heads of a kv head;
// for software adapters, which pay dearly for barriers.
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
// FINISHES: steps of one chunk, max_chunks 1: partial_o is attention's output o / l, and partial_ml isn't written
//
// Grid (local chunks, kv heads, rows): a workgroup = one (chunk, kv head, row). HEAD_TILE query heads at a time share the keys'
// scores (a vec4 a key) and the read of K and V. A key, then a unit of the values, a thread.
// Variant, chosen by index.ts: HEAD_TILE 1, 2 or 4, by the query heads of a kv head.
// Chunks beyond the row's keys or before its window, those of another rank (kv_holes.wgsl) and inactive rows: nothing is written.
const THREADS: u32 = 8;
const HEAD_TILE: u32 = 4; // variant
const FINISHES: bool = false; // variant

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
  // HEAD_UNITS and THREADS as bounds that compilers don't unroll: lavapipe would compile for many seconds.
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

// Scores, then weights exp(s - m), of the chunk's keys for the heads of the tile.
var<workgroup> weights: array<vec4<f32>, CHUNK>;
var<workgroup> maxima: array<vec4<f32>, THREADS>;
var<workgroup> sums: array<vec4<f32>, THREADS>;
var<workgroup> blocks: array<u32, CHUNK / BLOCK>;

// One unit of each head of the tile.
struct TileUnits {
  h0: vec4<f32>,
  h1: vec4<f32>,
  h2: vec4<f32>,
  h3: vec4<f32>,
}

fn row_sink(row: u32, head: u32) -> f32 {
  let piece = query_piece(head);
  let at = sink_at(piece.base + row * params.q_units, piece.end - piece.start, head - piece.start);
  return q[at / 4u][at % 4u];
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

// 4 dims of the key whose unit 0 is `key`.
fn load_key(key: u32, unit: u32) -> vec4<f32> {
  return kv_unpack(k_cache[key + unit * BLOCK], kv_scale(k_cache[key + kv_scale_unit(HEAD_UNITS, unit) * BLOCK], unit));
}

// 4 dims of the value whose unit 0 is `value`.
fn load_value(value: u32, unit: u32) -> vec4<f32> {
  return kv_unpack(v_cache[value + unit], kv_scale(v_cache[value + kv_scale_unit(HEAD_UNITS, unit)], unit));
}

// q . k of the tile's heads, whose units start at `at`.
fn key_scores(at: vec4<u32>, key: u32) -> vec4<f32> {
  var a0 = vec4<f32>();
  var a1 = vec4<f32>();
  var a2 = vec4<f32>();
  var a3 = vec4<f32>();
  for (var unit = 0u; unit < params.head_units; unit++) {
    let k = load_key(key, unit);
    a0 = fma(q[at.x + unit], k, a0);
    if (HEAD_TILE > 1u) {
      a1 = fma(q[at.y + unit], k, a1);
    }
    if (HEAD_TILE > 2u) {
      a2 = fma(q[at.z + unit], k, a2);
      a3 = fma(q[at.w + unit], k, a3);
    }
  }
  return vec4<f32>(sum4(a0), sum4(a1), sum4(a2), sum4(a3));
}

// sum of weight * v over the tokens [skip, count) of the chunk.
fn weigh_values(cache_head: u32, unit: u32, skip: u32, count: u32) -> TileUnits {
  var o = TileUnits(vec4<f32>(), vec4<f32>(), vec4<f32>(), vec4<f32>());
  for (var t = skip; t < count; t++) {
    let v = load_value(value_base(blocks[t / BLOCK], block_heads(), block_head(cache_head), t % BLOCK), unit);
    let w = weights[t];
    o.h0 = fma(vec4<f32>(w.x), v, o.h0);
    if (HEAD_TILE > 1u) {
      o.h1 = fma(vec4<f32>(w.y), v, o.h1);
    }
    if (HEAD_TILE > 2u) {
      o.h2 = fma(vec4<f32>(w.z), v, o.h2);
      o.h3 = fma(vec4<f32>(w.w), v, o.h3);
    }
  }
  return o;
}

// Of the tile's heads, once all threads' sums are there.
fn sum_weights(sinks: vec4<f32>, m: vec4<f32>) -> vec4<f32> {
  var l = sums[0];
  for (var i = 1u; i < params.stats; i++) {
    l += sums[i];
  }
  if (SINKS) {
    l += sink_weights(sinks, m);
  }
  return l;
}

fn finish_units(o: TileUnits, m: vec4<f32>, l: vec4<f32>) -> TileUnits {
  return TileUnits(
    softmax_finish(SoftmaxState(o.h0, m.x, l.x)),
    softmax_finish(SoftmaxState(o.h1, m.y, l.y)),
    softmax_finish(SoftmaxState(o.h2, m.z, l.z)),
    softmax_finish(SoftmaxState(o.h3, m.w, l.w)),
  );
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let kv_head = group_id.y;
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
  // Tokens of the chunk before the window.
  var skip = 0u;
  if (WINDOWED) {
    let seen = first_seen(last);
    if (first + count <= seen) {
      return;
    }
    skip = max(first, seen) - first;
  }
  let first_block = first / BLOCK;
  for (var i = thread; i * BLOCK < count; i += THREADS) {
    blocks[i] = entry_block(table, first_block + i);
  }

  let query = query_unit(row, params.q_units, kv_head * params.group, HEAD_UNITS);
  let partial = (row * params.heads + kv_head * params.group) * params.max_chunks + group_id.x;
  for (var tile = 0u; tile < params.group; tile += HEAD_TILE) {
    // A tile beyond the group computes its last head again, and doesn't write it.
    let tile_heads = min(vec4<u32>(tile) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.group - 1u));
    let at = vec4<u32>(query) + tile_heads * HEAD_UNITS;
    for (var t = skip + thread; t < count; t += THREADS) {
      let key = key_base(entry_block(table, first_block + t / BLOCK), block_heads(), block_head(cache_kv_head), t % BLOCK);
      weights[t] = cap_scores(params.scale * key_scores(at, key));
    }
    workgroupBarrier();
    var own_max = vec4<f32>(EMPTY_M);
    for (var t = skip + thread; t < count; t += THREADS) {
      own_max = max(own_max, weights[t]);
    }
    maxima[thread] = own_max;
    workgroupBarrier();
    var m = maxima[0];
    for (var i = 1u; i < params.stats; i++) {
      m = max(m, maxima[i]);
    }
    var sinks = vec4<f32>(EMPTY_M);
    if (SINKS && last - first < CHUNK) {
      sinks = row_sinks(row, vec4<u32>(kv_head * params.group) + tile_heads);
      m = max(m, sinks);
    }
    for (var t = skip + thread; t < count; t += THREADS) {
      weights[t] = exp(weights[t] - m);
    }
    workgroupBarrier();
    // Read again only after the next barrier: by thread 0 alone.
    var own_sum = vec4<f32>();
    for (var t = skip + thread; t < count; t += THREADS) {
      own_sum += weights[t];
    }
    sums[thread] = own_sum;

    var l = vec4<f32>();
    if (FINISHES) {
      workgroupBarrier();
      l = sum_weights(sinks, m);
    }
    for (var unit = thread; unit < params.head_units; unit += THREADS) {
      var o = weigh_values(cache_kv_head, unit, skip, count);
      if (FINISHES) {
        o = finish_units(o, m, l);
      }
      let to = (partial + tile * params.max_chunks) * HEAD_UNITS + unit;
      let step = params.max_chunks * HEAD_UNITS;
      partial_o[to] = o.h0;
      if (HEAD_TILE > 1u && tile + 1u < params.group) {
        partial_o[to + step] = o.h1;
      }
      if (HEAD_TILE > 2u && tile + 2u < params.group) {
        partial_o[to + 2u * step] = o.h2;
      }
      if (HEAD_TILE > 2u && tile + 3u < params.group) {
        partial_o[to + 3u * step] = o.h3;
      }
    }
    workgroupBarrier();

    if (thread == 0u && !FINISHES) {
      l = sum_weights(sinks, m);
      for (var h = 0u; h < min(HEAD_TILE, params.group - tile); h++) {
        partial_ml[partial + (tile + h) * params.max_chunks] = vec2<f32>(m[h], l[h]);
      }
    }
  }
}
