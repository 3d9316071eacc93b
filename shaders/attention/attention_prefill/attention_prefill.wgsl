// Causal attention of prompt rows over the paged cache, tiled for a GPU: the softmax state of each merge lane of this rank.
//
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t
//   over t <= position - evicted (the row's own entry, kv_table.wgsl) with floor(t / 256) mod 8 = lane, in ascending tiles of
//   KEY_TILE keys aligned to entries. window.wgsl: t from first_seen on, s capped
//   BOTH_WAYS: t up to seen_end; BOUNDED: from seen_start on (runs.wgsl)
//   sinks.wgsl: of the lane with the row's own entry, each head's sink beside the scores
//
// q            [rows][q_units*4] f32, head h at h * HEAD_DIM; or in pieces (query_pieces.wgsl), which cut no kv head's query heads
// k_cache, v_cache   see kv_layout.wgsl, KvUnit; the rows' own k and v are there already; of cache_kv_heads heads, attended to
//              are those from first_kv_head on
// row_info     [rows] (position, slot); each TILE_ROWS rows have one slot and ascending positions
// block_table  see kv_table.wgsl; only blocks of attended entries are read
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences; behind them ends, see runs.wgsl
// partial_o    [rows][heads][lanes][HEAD_DIM] f32, unnormalised; of this rank's local lanes (share.wgsl)
// partial_ml   [rows][heads][lanes] (m, l) f32, natural log, scale applied
// or both in bundles of heads (partial_layout.wgsl), [bundle][lanes][rows][bundle_heads]...
//
// Grid (local lanes, kv heads * ceil(group / HEAD_TILE), ceil(rows / TILE_ROWS)): a workgroup = QUERIES (row, head) vectors of one
// kv head, which share each tile of K, then V, in workgroup memory. A thread scores SCORE_QUERIES vectors against SCORE_KEYS keys; as
// 8 x 16 threads each sums QUERIES/8 vectors of every 16th unit. V is asked for before the scores, the next K before V is used.
// Variants, chosen by index.ts: KEY_TILE * HEAD_DIM <= 2048; HEAD_TILE 1 or 2; TILE_ROWS 16. KEEPS_QUERIES: in workgroup memory;
// changes no bit.
// A lane without keys for a row: the empty state; one that lies elsewhere (kv_holes.wgsl), too, or, COMPACT, nothing, and those that
// lie here stand one behind the other. Inactive rows: nothing is written.
const TILE_ROWS: u32 = 16; // variant
const KEY_TILE: u32 = 32; // variant
const HEAD_TILE: u32 = 2; // variant
const COMPACT: bool = false; // variant
const KEEPS_QUERIES: bool = true; // variant
const THREADS: u32 = 128u;
const QUERIES: u32 = TILE_ROWS * HEAD_TILE;
// Of a scorer: vectors QUERY_LANES and keys KEY_LANES apart, and units that it loads at once.
const SCORE_KEYS: u32 = select(1u, 2u, KEY_TILE * HEAD_TILE >= 32u);
const KEY_LANES: u32 = KEY_TILE / SCORE_KEYS;
const QUERY_LANES: u32 = min(THREADS / KEY_LANES, QUERIES);
const SCORE_QUERIES: u32 = QUERIES / QUERY_LANES;
const SCORE_UNITS: u32 = select(2u, 4u, HEAD_UNITS % 4u == 0u && SCORE_QUERIES * SCORE_KEYS <= 4u);
// Of a thread that sums: vectors, units, and keys that it loads at once.
const THREAD_QUERIES: u32 = QUERIES / 8u;
const THREAD_UNITS: u32 = (HEAD_UNITS + 15u) / 16u;
const SUM_KEYS: u32 = max(1u, 4u / THREAD_UNITS);
// Threads that share a vector's softmax, and their keys.
const PARTS: u32 = THREADS / QUERIES;
const PART_KEYS: u32 = (KEY_TILE + PARTS - 1u) / PARTS;
// Of `weights`, padded by one so that neighbouring keys fall into different banks.
const WEIGHT_STRIDE: u32 = QUERIES + 1u;
const TILE_UNITS: u32 = KEY_TILE * HEAD_UNITS;
const TILE_LOADS: u32 = (TILE_UNITS + THREADS - 1u) / THREADS;
const QUERY_UNITS: u32 = select(1u, QUERIES * HEAD_UNITS, KEEPS_QUERIES);
const QUERY_LOADS: u32 = (QUERY_UNITS + THREADS - 1u) / THREADS;

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
  // HEAD_UNITS, KEY_TILE and TILE_ROWS as bounds that compilers don't unroll: lavapipe would compile for many seconds, and a GPU's
  // would load more at once than there are registers.
  head_units: u32,
  key_tile: u32,
  tile_rows: u32,
  scale: f32,
  // See window.wgsl.
  window: u32,
  softcap: f32,
  // See runs.wgsl.
  run_rows: u32,
  run_ends: u32,
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
var<workgroup> kv_tile: array<vec4<f32>, TILE_UNITS>;
// [query][unit].
var<workgroup> queries: array<vec4<f32>, QUERY_UNITS>;
// Scores, then weights exp(s - m): [key][query].
var<workgroup> weights: array<f32, KEY_TILE * WEIGHT_STRIDE>;
// [part][query]: maxima of a tile, at the end sums of weights.
var<workgroup> parts: array<f32, THREADS>;
var<workgroup> rescale: array<f32, QUERIES>;
// Of a chunk.
var<workgroup> blocks: array<u32, CHUNK / BLOCK>;

// A tile of K or V: entries from `start` on of a head. Those outside of [seen, end) repeat one within: weight 0 times a NaN that no row
// of the tile sees would not be 0.
struct Tile {
  start: u32,
  seen: u32,
  end: u32,
  head: u32,
}

// Units load * THREADS + thread of a tile, on their way from memory.
struct Fetched {
  units: array<KvUnit, TILE_LOADS>,
  scales: array<KvUnit, TILE_LOADS>,
}

fn row_sink(row: u32, head: u32) -> f32 {
  let piece = query_piece(head);
  let at = sink_at(piece.base + row * params.q_units, piece.end - piece.start, head - piece.start);
  return q[at / 4u][at % 4u];
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn tile_unit(load: u32, thread: u32) -> u32 {
  return min(load * THREADS + thread, TILE_UNITS - 1u);
}

fn tile_entry(tile: Tile, index: u32) -> u32 {
  return clamp(tile.start + index, tile.seen, tile.end - 1u);
}

fn fetch_keys(tile: Tile, thread: u32) -> Fetched {
  var fetched = Fetched();
  for (var load = 0u; load < TILE_LOADS; load++) {
    let i = tile_unit(load, thread);
    let entry = tile_entry(tile, i % KEY_TILE);
    let unit = i / KEY_TILE;
    let key = key_base(blocks[entry % CHUNK / BLOCK], block_heads(), tile.head, entry % BLOCK);
    fetched.units[load] = k_cache[key + unit * BLOCK];
    fetched.scales[load] = k_cache[key + kv_scale_unit(HEAD_UNITS, unit) * BLOCK];
  }
  return fetched;
}

fn fetch_values(tile: Tile, thread: u32) -> Fetched {
  var fetched = Fetched();
  for (var load = 0u; load < TILE_LOADS; load++) {
    let i = tile_unit(load, thread);
    let entry = tile_entry(tile, i / HEAD_UNITS);
    let unit = i % HEAD_UNITS;
    let value = value_base(blocks[entry % CHUNK / BLOCK], block_heads(), tile.head, entry % BLOCK);
    fetched.units[load] = v_cache[value + unit];
    fetched.scales[load] = v_cache[value + kv_scale_unit(HEAD_UNITS, unit)];
  }
  return fetched;
}

fn put(fetched: Fetched, is_key: bool, thread: u32) {
  for (var load = 0u; load < TILE_LOADS; load++) {
    let i = load * THREADS + thread;
    if (TILE_UNITS % THREADS == 0u || i < TILE_UNITS) {
      let unit = select(i % HEAD_UNITS, i / KEY_TILE, is_key);
      kv_tile[i] = kv_unpack(fetched.units[load], kv_scale(fetched.scales[load], unit));
    }
  }
}

// In q, from first_query on: unit 0 of a vector. Rows and heads beyond the last repeat it.
fn query_at(vector: u32, first_row: u32, first_head: u32) -> u32 {
  let row = min(first_row + vector % TILE_ROWS, params.rows - 1u);
  return row * params.q_units + min(first_head + vector / TILE_ROWS, params.group - 1u) * HEAD_UNITS;
}

fn query_unit_at(at: u32) -> vec4<f32> {
  if (KEEPS_QUERIES) {
    return queries[at];
  }
  return q[at];
}

fn row_position(row: u32) -> u32 {
  if (row >= params.rows) {
    return INACTIVE;
  }
  return row_info[row].x;
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let head_tiles = (params.group + HEAD_TILE - 1u) / HEAD_TILE;
  let kv_head = group_id.y / head_tiles;
  let cache_kv_head = params.first_kv_head + kv_head;
  let first_head = (group_id.y % head_tiles) * HEAD_TILE;
  let first_row = group_id.z * TILE_ROWS;

  // The entries that any row of the tile attends to: from `seen` up to `end`.
  var end = 0u;
  var seen = INACTIVE;
  var slot = 0u;
  for (var i = 0u; i < TILE_ROWS; i++) {
    let info = row_info[min(first_row + i, params.rows - 1u)];
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
  if (BOTH_WAYS) {
    // Of the tile's rows that are of a run, the last.
    end = max(end, seen_end(min(end - 1u, chunk_offsets[params.run_ends + slot] - 1u), slot));
  }
  let gone = evicted_entries(table);
  end -= gone;
  seen = seen_start(seen - gone);
  let lane = own_lane(slot, group_id.x);
  var partial_lane = group_id.x;
  if (COMPACT) {
    if (!holds_chunk(table, lane)) {
      return;
    }
    partial_lane = countOneBits(held_lanes(table, lane));
  }

  let piece = query_piece(kv_head * params.group);
  let first_query = piece.base + (kv_head * params.group - piece.start) * HEAD_UNITS;
  if (KEEPS_QUERIES) {
    for (var load = 0u; load < QUERY_LOADS; load++) {
      let i = load * THREADS + thread;
      if (QUERY_UNITS % THREADS == 0u || i < QUERY_UNITS) {
        queries[i] = q[first_query + query_at(i / HEAD_UNITS, first_row, first_head) + i % HEAD_UNITS];
      }
    }
  }
  // As a scorer: vectors qy, qy + QUERY_LANES, ... (row = vector % TILE_ROWS), keys kx, kx + KEY_LANES, ...
  let kx = thread % KEY_LANES;
  let qy = thread / KEY_LANES;
  var score_at: array<u32, SCORE_QUERIES>;
  var limit: array<u32, SCORE_QUERIES>;
  var since: array<u32, SCORE_QUERIES>;
  for (var j = 0u; j < SCORE_QUERIES; j++) {
    let vector = qy + QUERY_LANES * j;
    score_at[j] = first_query + query_at(vector, first_row, first_head);
    if (KEEPS_QUERIES) {
      score_at[j] = vector * HEAD_UNITS;
    }
    // Keys below the limit count; of an inactive row, none.
    let position = row_position(first_row + vector % TILE_ROWS);
    limit[j] = select(seen_end(position, slot) - gone, 0u, position == INACTIVE);
    if (WINDOWED) {
      since[j] = select(seen_start(position - gone), 0u, position == INACTIVE);
    }
  }
  // As one that sums: vectors ty, ty + 8, ..., units tx, tx + 16, ...
  let tx = thread % 16u;
  let ty = thread / 16u;
  var o: array<vec4<f32>, THREAD_QUERIES * THREAD_UNITS>;

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
  var chunk = lane;
  if (WINDOWED) {
    // The first of the lane's chunks that isn't before the window.
    chunk += (max(seen / CHUNK, lane) - lane + MERGE_LANES - 1u) / MERGE_LANES * MERGE_LANES;
  }
  var tile = Tile(0u, seen, end, block_head(cache_kv_head));
  for (var chunks = steps(chunk, steps(0u, end, CHUNK), MERGE_LANES); chunks > 0u; chunks--) {
    let chunk_end = min(end, (chunk + 1u) * CHUNK);
    tile.start = chunk * CHUNK;
    if (WINDOWED) {
      tile.start = max(tile.start, seen / KEY_TILE * KEY_TILE);
    }
    if (thread < CHUNK / BLOCK) {
      blocks[thread] = entry_block(table, clamp(chunk * (CHUNK / BLOCK) + thread, seen / BLOCK, (end - 1u) / BLOCK));
    }
    workgroupBarrier();
    var keys = fetch_keys(tile, thread);
    for (var tiles = steps(tile.start, chunk_end, KEY_TILE); tiles > 0u; tiles--) {
      put(keys, true, thread);
      workgroupBarrier();

      let values = fetch_values(tile, thread);
      if (qy < QUERY_LANES) {
        // Initialised in so many words: without, some compilers zero it only before the loop.
        var s = array<vec4<f32>, SCORE_QUERIES * SCORE_KEYS>();
        var unit = 0u;
        for (var left = params.head_units / SCORE_UNITS; left > 0u; left--) {
          var wanted = array<vec4<f32>, SCORE_QUERIES * SCORE_UNITS>();
          var given = array<vec4<f32>, SCORE_KEYS * SCORE_UNITS>();
          for (var u = 0u; u < SCORE_UNITS; u++) {
            for (var j = 0u; j < SCORE_QUERIES; j++) {
              wanted[j * SCORE_UNITS + u] = query_unit_at(score_at[j] + unit + u);
            }
            for (var i = 0u; i < SCORE_KEYS; i++) {
              given[i * SCORE_UNITS + u] = kv_tile[(unit + u) * KEY_TILE + kx + KEY_LANES * i];
            }
          }
          for (var u = 0u; u < SCORE_UNITS; u++) {
            for (var j = 0u; j < SCORE_QUERIES; j++) {
              for (var i = 0u; i < SCORE_KEYS; i++) {
                let at = j * SCORE_KEYS + i;
                s[at] = fma(wanted[j * SCORE_UNITS + u], given[i * SCORE_UNITS + u], s[at]);
              }
            }
          }
          unit += SCORE_UNITS;
        }
        for (var j = 0u; j < SCORE_QUERIES; j++) {
          for (var i = 0u; i < SCORE_KEYS; i++) {
            let key = kx + KEY_LANES * i;
            let score = cap_scores(vec4<f32>(params.scale * sum4(s[j * SCORE_KEYS + i]))).x;
            let sees = tile.start + key < limit[j] && (!WINDOWED || tile.start + key >= since[j]);
            weights[key * WEIGHT_STRIDE + qy + QUERY_LANES * j] = select(EMPTY_M, score, sees);
          }
        }
      }
      workgroupBarrier();

      put(values, false, thread);
      tile.start += KEY_TILE;
      if (tiles > 1u) {
        keys = fetch_keys(tile, thread);
      }
      var own = array<f32, PART_KEYS>();
      var most = EMPTY_M;
      for (var i = 0u; i < PART_KEYS; i++) {
        // Keys beyond the tile repeat its last one.
        own[i] = weights[min(part + i * PARTS, KEY_TILE - 1u) * WEIGHT_STRIDE + mine];
        most = max(most, own[i]);
      }
      parts[thread] = most;
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
      for (var i = 0u; i < PART_KEYS; i++) {
        let key = part + i * PARTS;
        if (KEY_TILE % PARTS == 0u || key < KEY_TILE) {
          let weight = select(exp(own[i] - m), 0.0, own[i] == EMPTY_M);
          weights[key * WEIGHT_STRIDE + mine] = weight;
          added += weight;
        }
      }
      l = fma(l, old_weight, added);
      workgroupBarrier();

      for (var j = 0u; j < THREAD_QUERIES; j++) {
        let scale = rescale[ty + 8u * j];
        for (var i = 0u; i < THREAD_UNITS; i++) {
          o[j * THREAD_UNITS + i] *= scale;
        }
      }
      var token = 0u;
      for (var left = params.key_tile / SUM_KEYS; left > 0u; left--) {
        var given = array<vec4<f32>, SUM_KEYS * THREAD_UNITS>();
        var weighed = array<f32, SUM_KEYS * THREAD_QUERIES>();
        for (var k = 0u; k < SUM_KEYS; k++) {
          for (var i = 0u; i < THREAD_UNITS; i++) {
            given[k * THREAD_UNITS + i] = kv_tile[(token + k) * HEAD_UNITS + min(tx + 16u * i, HEAD_UNITS - 1u)];
          }
          for (var j = 0u; j < THREAD_QUERIES; j++) {
            weighed[k * THREAD_QUERIES + j] = weights[(token + k) * WEIGHT_STRIDE + ty + 8u * j];
          }
        }
        for (var k = 0u; k < SUM_KEYS; k++) {
          for (var i = 0u; i < THREAD_UNITS; i++) {
            for (var j = 0u; j < THREAD_QUERIES; j++) {
              let at = j * THREAD_UNITS + i;
              o[at] = fma(vec4<f32>(weighed[k * THREAD_QUERIES + j]), given[k * THREAD_UNITS + i], o[at]);
            }
          }
        }
        token += SUM_KEYS;
      }
      workgroupBarrier();
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
    if (row_position(row) != INACTIVE && head < params.group) {
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
