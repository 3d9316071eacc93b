// Causal attention of prompt rows over the paged cache, tiled for a GPU: the softmax state of each merge lane of this rank.
//
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t
//   over t <= position - evicted (the row's own entry, kv_table.wgsl) with floor(t / 256) mod 8 = lane, in ascending tiles of
//   KEY_TILE keys aligned to entries. window.wgsl: t from first_seen on, s capped
//   sinks.wgsl: of the lane with the row's own entry, each head's sink beside the scores
//
// q            [rows][q_units*4] f32, head h at h * HEAD_DIM; or in pieces (query_pieces.wgsl), which cut no kv head's query heads
// k_cache, v_cache   see kv_layout.wgsl, KvUnit; the rows' own k and v are there already; of cache_kv_heads heads, attended to
//              are those from first_kv_head on
// row_info     [rows] (position, slot); each TILE_ROWS rows have one slot and ascending positions
// block_table  see kv_table.wgsl; only blocks of attended entries are read
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences
// partial_o    [rows][heads][lanes][HEAD_DIM] f32, unnormalised; of this rank's local lanes (share.wgsl)
// partial_ml   [rows][heads][lanes] (m, l) f32, natural log, scale applied
// or both in bundles of heads (partial_layout.wgsl), [bundle][lanes][rows][bundle_heads]...
//
// Grid (local lanes, kv heads * ceil(group / HEAD_TILE), ceil(rows / TILE_ROWS)): a workgroup = QUERIES (row, head) vectors of one
// kv head, which share each tile of K, then V, in workgroup memory. As 8 x 16 threads: a thread scores QUERIES/8 vectors
// against KEY_TILE/16 keys, and sums QUERIES/8 vectors of every 16th unit.
// Variants, chosen by index.ts: KEY_TILE * HEAD_DIM <= 2048; HEAD_TILE 1 or 2; TILE_ROWS 16.
// A lane without keys for a row: the empty state; one that lies elsewhere (kv_holes.wgsl), too, or, COMPACT, nothing, and those that
// lie here stand one behind the other. Inactive rows: nothing is written.
const TILE_ROWS: u32 = 16; // variant
const KEY_TILE: u32 = 32; // variant
const HEAD_TILE: u32 = 2; // variant
const COMPACT: bool = false; // variant
const THREADS: u32 = 128u;
const QUERIES: u32 = TILE_ROWS * HEAD_TILE;
const THREAD_QUERIES: u32 = QUERIES / 8u;
const THREAD_KEYS: u32 = (KEY_TILE + 15u) / 16u;
const THREAD_UNITS: u32 = (HEAD_UNITS + 15u) / 16u;
// Threads that share a vector's softmax.
const PARTS: u32 = THREADS / QUERIES;
// Of `weights`, padded by one so that neighbouring keys fall into different banks.
const WEIGHT_STRIDE: u32 = QUERIES + 1u;

struct Params {
  rows: u32,
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
  // See partial_layout.wgsl.
  bundle_heads: u32,
  bundle_stride: u32,
  row_stride: u32,
  head_stride: u32,
  lane_stride: u32,
  table_stride: u32,
  share_ranks: u32,
  share_index: u32,
  // Query heads of a kv head.
  group: u32,
  // HEAD_UNITS, KEY_TILE and TILE_ROWS as bounds that compilers don't unroll: lavapipe would compile for many seconds.
  head_units: u32,
  key_tile: u32,
  tile_rows: u32,
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

// K as [unit][key], then V as [key][unit].
var<workgroup> kv_tile: array<vec4<f32>, KEY_TILE * HEAD_UNITS>;
// Scores, then weights exp(s - m): [key][query].
var<workgroup> weights: array<f32, KEY_TILE * WEIGHT_STRIDE>;
// [part][query]: maxima of a tile, at the end sums of weights.
var<workgroup> parts: array<f32, THREADS>;
var<workgroup> rescale: array<f32, QUERIES>;

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

fn row_position(row: u32) -> u32 {
  if (row >= params.rows) {
    return INACTIVE;
  }
  return row_info[row].x;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head_tiles = (params.group + HEAD_TILE - 1u) / HEAD_TILE;
  let kv_head = group_id.y / head_tiles;
  let cache_kv_head = params.first_kv_head + kv_head;
  let first_head = (group_id.y % head_tiles) * HEAD_TILE;
  let first_row = group_id.z * TILE_ROWS;

  // The entries that any row of the tile attends to: from `seen` up to `end`.
  var end = 0u;
  var seen = INACTIVE;
  var slot = 0u;
  let tile_rows = min(params.tile_rows, params.rows - first_row);
  for (var left = tile_rows; left > 0u; left--) {
    let info = row_info[first_row + tile_rows - left];
    if (info.x != INACTIVE) {
      end = max(end, info.x + 1u);
      seen = min(seen, info.x);
      slot = info.y;
    }
  }
  if (end == 0u) {
    return;
  }
  let table = head_table(slot, cache_kv_head);
  let gone = evicted_entries(table);
  end -= gone;
  seen = first_seen(seen - gone);
  let lane = own_lane(slot, group_id.x);
  var partial_lane = group_id.x;
  if (COMPACT) {
    if (!holds_chunk(table, lane)) {
      return;
    }
    partial_lane = countOneBits(held_lanes(table, lane));
  }

  // As a scorer: vectors ty, ty + 8, ... (row = vector % TILE_ROWS), keys or units tx, tx + 16, ...
  let tx = thread % 16u;
  let ty = thread / 16u;
  let piece = query_piece(kv_head * params.group);
  var query_at: array<u32, THREAD_QUERIES>;
  var limit: array<u32, THREAD_QUERIES>;
  var since: array<u32, THREAD_QUERIES>;
  var o: array<vec4<f32>, THREAD_QUERIES * THREAD_UNITS>;
  for (var j = 0u; j < THREAD_QUERIES; j++) {
    let vector = ty + 8u * j;
    let row = min(first_row + vector % TILE_ROWS, params.rows - 1u);
    let head = min(first_head + vector / TILE_ROWS, params.group - 1u);
    query_at[j] = piece.base + row * params.q_units + (kv_head * params.group + head - piece.start) * HEAD_UNITS;
    // Keys below the limit count; of an inactive row, none.
    let position = row_position(first_row + vector % TILE_ROWS);
    limit[j] = select(position + 1u - gone, 0u, position == INACTIVE);
    if (WINDOWED) {
      since[j] = select(first_seen(position - gone), 0u, position == INACTIVE);
    }
  }

  // As a softmaxer: vector `mine`, keys part, part + PARTS, ...
  let mine = thread % QUERIES;
  let part = thread / QUERIES;
  var m = EMPTY_M;
  var l = 0.0;

  if (!holds_chunk(table, lane)) {
    // Another rank's lane, whole: the empty state.
    end = 0u;
  }
  if (SINKS) {
    let head = min(first_head + mine / TILE_ROWS, params.group - 1u);
    let own = first_row + mine % TILE_ROWS;
    let position = row_position(own);
    if (end > 0u && position != INACTIVE && (position - gone) / CHUNK % MERGE_LANES == lane) {
      m = row_sink(own, kv_head * params.group + head);
      l = select(0.0, 1.0, part == 0u);
    }
  }
  let staged = steps(thread, params.key_tile * HEAD_UNITS, THREADS);
  let own_keys = steps(part, params.key_tile, PARTS);
  var chunk = lane;
  if (WINDOWED) {
    // The first of the lane's chunks that isn't before the window.
    chunk += (max(seen / CHUNK, lane) - lane + MERGE_LANES - 1u) / MERGE_LANES * MERGE_LANES;
  }
  for (var chunks = steps(chunk, steps(0u, end, CHUNK), MERGE_LANES); chunks > 0u; chunks--) {
    let chunk_end = min(end, (chunk + 1u) * CHUNK);
    var start = chunk * CHUNK;
    if (WINDOWED) {
      start = max(start, seen / KEY_TILE * KEY_TILE);
    }
    for (var tiles = steps(start, chunk_end, KEY_TILE); tiles > 0u; tiles--) {
      var i = thread;
      for (var left = staged; left > 0u; left--) {
        let token = start + i % KEY_TILE;
        var value = vec4<f32>();
        if (token < end && token >= seen) {
          let base = key_base(entry_block(table, token / BLOCK), block_heads(), block_head(cache_kv_head), token % BLOCK);
          value = load_key(base, i / KEY_TILE);
        }
        kv_tile[i] = value;
        i += THREADS;
      }
      workgroupBarrier();

      if (tx < KEY_TILE) {
        // Initialised in so many words: without, some compilers zero it only before the loop.
        var s = array<vec4<f32>, THREAD_QUERIES * THREAD_KEYS>();
        for (var units = params.head_units; units > 0u; units--) {
          let unit = params.head_units - units;
          for (var j = 0u; j < THREAD_QUERIES; j++) {
            let query = q[query_at[j] + unit];
            for (var i = 0u; i < THREAD_KEYS; i++) {
              s[j * THREAD_KEYS + i] = fma(query, kv_tile[unit * KEY_TILE + tx + 16u * i], s[j * THREAD_KEYS + i]);
            }
          }
        }
        for (var j = 0u; j < THREAD_QUERIES; j++) {
          for (var i = 0u; i < THREAD_KEYS; i++) {
            let key = tx + 16u * i;
            let score = cap_scores(vec4<f32>(params.scale * sum4(s[j * THREAD_KEYS + i]))).x;
            let sees = start + key < limit[j] && (!WINDOWED || start + key >= since[j]);
            weights[key * WEIGHT_STRIDE + ty + 8u * j] = select(EMPTY_M, score, sees);
          }
        }
      }
      workgroupBarrier();

      i = thread;
      for (var left = staged; left > 0u; left--) {
        let token = start + i / HEAD_UNITS;
        // Tokens that no row of the tile sees are never loaded: weight 0 times a NaN would not be 0.
        var value = vec4<f32>();
        if (token < end && token >= seen) {
          let base = value_base(entry_block(table, token / BLOCK), block_heads(), block_head(cache_kv_head), token % BLOCK);
          value = load_value(base, i % HEAD_UNITS);
        }
        kv_tile[i] = value;
        i += THREADS;
      }
      var own = EMPTY_M;
      var key = part;
      for (var left = own_keys; left > 0u; left--) {
        own = max(own, weights[key * WEIGHT_STRIDE + mine]);
        key += PARTS;
      }
      parts[thread] = own;
      workgroupBarrier();

      var new_m = m;
      for (var i = 0u; i < PARTS; i++) {
        new_m = max(new_m, parts[i * QUERIES + mine]);
      }
      let old_weight = softmax_weight(m, new_m);
      m = new_m;
      if (part == 0u) {
        rescale[mine] = old_weight;
      }
      var added = 0.0;
      key = part;
      for (var left = own_keys; left > 0u; left--) {
        let score = weights[key * WEIGHT_STRIDE + mine];
        let weight = select(exp(score - m), 0.0, score == EMPTY_M);
        weights[key * WEIGHT_STRIDE + mine] = weight;
        added += weight;
        key += PARTS;
      }
      l = fma(l, old_weight, added);
      workgroupBarrier();

      for (var j = 0u; j < THREAD_QUERIES; j++) {
        let scale = rescale[ty + 8u * j];
        for (var i = 0u; i < THREAD_UNITS; i++) {
          o[j * THREAD_UNITS + i] *= scale;
        }
      }
      for (var keys = params.key_tile; keys > 0u; keys--) {
        let token = params.key_tile - keys;
        for (var i = 0u; i < THREAD_UNITS; i++) {
          let value = kv_tile[token * HEAD_UNITS + min(tx + 16u * i, HEAD_UNITS - 1u)];
          for (var j = 0u; j < THREAD_QUERIES; j++) {
            let weight = weights[token * WEIGHT_STRIDE + ty + 8u * j];
            o[j * THREAD_UNITS + i] = fma(vec4<f32>(weight), value, o[j * THREAD_UNITS + i]);
          }
        }
      }
      workgroupBarrier();
      start += KEY_TILE;
    }
    chunk += MERGE_LANES;
  }

  parts[thread] = l;
  workgroupBarrier();
  // Of the tile's heads.
  let first_at = partial_at(kv_head * params.group + first_head, partial_lane);
  let second_at = partial_at(kv_head * params.group + first_head + 1u, partial_lane);
  let my_row = first_row + mine % TILE_ROWS;
  let my_head = first_head + mine / TILE_ROWS;
  if (part == 0u && my_head < params.group && row_position(my_row) != INACTIVE) {
    l = 0.0;
    for (var i = 0u; i < PARTS; i++) {
      l += parts[i * QUERIES + mine];
    }
    let to = select(second_at, first_at, mine < TILE_ROWS) + my_row * params.row_stride;
    partial_ml[to] = vec2<f32>(m, l);
  }
  for (var j = 0u; j < THREAD_QUERIES; j++) {
    let vector = ty + 8u * j;
    let head = first_head + vector / TILE_ROWS;
    let row = first_row + vector % TILE_ROWS;
    if (limit[j] != 0u && head < params.group) {
      let to = (select(second_at, first_at, vector < TILE_ROWS) + row * params.row_stride) * HEAD_UNITS;
      for (var i = 0u; i < THREAD_UNITS; i++) {
        let unit = tx + 16u * i;
        if (unit < HEAD_UNITS) {
          let sum = o[j * THREAD_UNITS + i];
          // Never -0, whose sign could depend on the masked values added with weight 0.
          partial_o[to + unit] = select(sum, vec4<f32>(), sum == vec4<f32>());
        }
      }
    }
  }
}
