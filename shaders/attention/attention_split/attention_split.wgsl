// Split-KV attention of generated rows: the softmax state of one 256-token chunk of this rank, for a tile of a kv head's query
// heads; for hardware adapters.
//
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t      t in the chunk, t <= last
//   last = position - evicted: the row's own entry (kv_table.wgsl); chunks are of entries. window.wgsl: t from first_seen on, s capped
//
// q            [rows][q_units*4] f32, head h at h * HEAD_DIM; or in pieces (query_pieces.wgsl), which cut no kv head's query heads
// k_cache, v_cache   see kv_layout.wgsl, KvUnit; of cache_kv_heads heads, attended to are those from first_kv_head on
// row_info     [rows] (position, slot)
// block_table  see kv_table.wgsl; only blocks of entries that are attended to are read
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences
// partial_o    [rows][heads][max_chunks][HEAD_DIM] f32, unnormalised; of this rank's local chunks (share.wgsl)
// partial_ml   [rows][heads][max_chunks] (m, l) f32, natural log, scale applied
//
// Grid (local chunks, kv heads * tiles, rows): a workgroup = one (chunk, HEAD_TILE query heads of a kv head, row). Its heads share
// the read of K and V. Scores: a key a thread. Values: SLICES token slices x HEAD_UNITS threads.
// Memory is waited for seldom: STEP units of a key are asked for before the first is used, and the first values before the scores.
// Variants, chosen by index.ts: HEAD_TILE 1, 2 or 4, by the query heads of a kv head; STEP, a divisor of HEAD_UNITS; VALUES;
// UNROLLED. The last three change no bit.
// Chunks beyond the row's keys or before its window, those of another rank (kv_holes.wgsl) and inactive rows: nothing is written.
const HEAD_TILE: u32 = 4; // variant
const STEP: u32 = 8; // variant
// Values that a thread asks for at a time.
const VALUES: u32 = 4; // variant
// Whether the short loops over workgroup memory have bounds that a compiler may unroll.
const UNROLLED: bool = true; // variant
const THREADS: u32 = CHUNK;
// Threads that scan scores and weights, each CHUNK / STATS of them.
const STATS: u32 = 16u;
const SLICES: u32 = min(16u, THREADS / HEAD_UNITS);
// Slices of two heads are summed at a time.
const PAIR: u32 = min(HEAD_TILE, 2u);

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
var<workgroup> maxima: array<vec4<f32>, STATS>;
var<workgroup> sums: array<vec4<f32>, STATS>;
var<workgroup> slice_o: array<vec4<f32>, PAIR * SLICES * HEAD_UNITS>;

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
  var first = 0u;
  for (var left = params.head_units / STEP; left > 0u; left--) {
    var k = array<vec4<f32>, STEP>();
    for (var i = 0u; i < STEP; i++) {
      k[i] = load_key(key, first + i);
    }
    for (var i = 0u; i < STEP; i++) {
      let unit = first + i;
      a0 = fma(q[at.x + unit], k[i], a0);
      if (HEAD_TILE > 1u) {
        a1 = fma(q[at.y + unit], k[i], a1);
      }
      if (HEAD_TILE > 2u) {
        a2 = fma(q[at.z + unit], k[i], a2);
        a3 = fma(q[at.w + unit], k[i], a3);
      }
    }
    first += STEP;
  }
  return vec4<f32>(sum4(a0), sum4(a1), sum4(a2), sum4(a3));
}

// STATS, or fewer where there are fewer of what is counted.
fn scans(most: u32) -> u32 {
  return select(min(params.stats, most), min(STATS, most), UNROLLED);
}

// A unit of the values of VALUES tokens from `token` on, SLICES apart; beyond the chunk of the last token again, and before the
// window, `skip` tokens, of the first that is seen.
fn load_values(
  table: u32,
  cache_head: u32,
  unit: u32,
  first: u32,
  token: u32,
  skip: u32,
  count: u32,
) -> array<vec4<f32>, VALUES> {
  var values = array<vec4<f32>, VALUES>();
  for (var i = 0u; i < VALUES; i++) {
    var t = min(token + i * SLICES, count - 1u);
    if (WINDOWED) {
      t = max(t, skip);
    }
    let physical = entry_block(table, first / BLOCK + t / BLOCK);
    values[i] = load_value(value_base(physical, block_heads(), block_head(cache_head), t % BLOCK), unit);
  }
  return values;
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
  // Tokens of the chunk before the window.
  var skip = 0u;
  if (WINDOWED) {
    let seen = first_seen(last);
    if (first + count <= seen) {
      return;
    }
    skip = max(first, seen) - first;
  }

  let lane = thread % HEAD_UNITS;
  let slice = thread / HEAD_UNITS;
  let batches = steps(slice, count, VALUES * SLICES);
  var values = load_values(table, cache_kv_head, lane, first, slice, skip, count);

  let query = query_unit(row, params.q_units, kv_head * params.group, HEAD_UNITS);
  // A tile beyond the group computes its last head again, and doesn't write it.
  let tile_heads = min(vec4<u32>(tile) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.group - 1u));
  var scores = vec4<f32>(EMPTY_M);
  if (thread < count && thread >= skip) {
    let physical = entry_block(table, (first + thread) / BLOCK);
    let key = key_base(physical, block_heads(), block_head(cache_kv_head), thread % BLOCK);
    scores = cap_scores(params.scale * key_scores(vec4<u32>(query) + tile_heads * HEAD_UNITS, key));
  }
  weights[thread] = scores;
  workgroupBarrier();
  if (thread < STATS) {
    var own = weights[thread];
    var at = thread;
    for (var left = scans(CHUNK / STATS) - 1u; left > 0u; left--) {
      at += STATS;
      own = max(own, weights[at]);
    }
    maxima[thread] = own;
  }
  workgroupBarrier();
  var m = maxima[0];
  for (var left = scans(STATS) - 1u; left > 0u; left--) {
    m = max(m, maxima[left]);
  }
  weights[thread] = select(vec4<f32>(), exp(scores - m), thread < count && thread >= skip);
  workgroupBarrier();
  // Read only after the next barrier, by thread 0.
  if (thread < STATS) {
    var own = weights[thread];
    var at = thread;
    for (var left = scans(CHUNK / STATS) - 1u; left > 0u; left--) {
      at += STATS;
      own += weights[at];
    }
    sums[thread] = own;
  }

  var o0 = vec4<f32>();
  var o1 = vec4<f32>();
  var o2 = vec4<f32>();
  var o3 = vec4<f32>();
  if (slice < SLICES) {
    var token = slice;
    for (var left = batches; left > 0u; left--) {
      let batch = values;
      if (left > 1u) {
        values = load_values(table, cache_kv_head, lane, first, token + VALUES * SLICES, skip, count);
      }
      for (var i = 0u; i < VALUES; i++) {
        let t = token + i * SLICES;
        let w = select(vec4<f32>(), weights[min(t, CHUNK - 1u)], t < count);
        o0 = fma(vec4<f32>(w.x), batch[i], o0);
        if (HEAD_TILE > 1u) {
          o1 = fma(vec4<f32>(w.y), batch[i], o1);
        }
        if (HEAD_TILE > 2u) {
          o2 = fma(vec4<f32>(w.z), batch[i], o2);
          o3 = fma(vec4<f32>(w.w), batch[i], o3);
        }
      }
      token += VALUES * SLICES;
    }
  }

  let partial = (row * params.heads + kv_head * params.group + tile) * params.max_chunks + group_id.x;
  let tile_size = min(HEAD_TILE, params.group - tile);
  for (var pair = 0u; pair < HEAD_TILE / PAIR; pair++) {
    if (slice < SLICES) {
      slice_o[thread] = select(o2, o0, pair == 0u);
      if (HEAD_TILE > 1u) {
        slice_o[SLICES * HEAD_UNITS + thread] = select(o3, o1, pair == 0u);
      }
    }
    workgroupBarrier();
    // The first HEAD_UNITS threads sum the first head of the pair, the next ones the second.
    let head = pair * PAIR + slice;
    if (slice < PAIR && head < tile_size) {
      var total = vec4<f32>();
      var at = slice * SLICES * HEAD_UNITS + lane;
      for (var left = scans(SLICES); left > 0u; left--) {
        total += slice_o[at];
        at += HEAD_UNITS;
      }
      partial_o[(partial + head * params.max_chunks) * HEAD_UNITS + lane] = total;
    }
    workgroupBarrier();
  }

  if (thread < tile_size) {
    var l = vec4<f32>();
    for (var left = scans(STATS); left > 0u; left--) {
      l += sums[STATS - left];
    }
    partial_ml[partial + thread * params.max_chunks] = vec2<f32>(m[thread], l[thread]);
  }
}
