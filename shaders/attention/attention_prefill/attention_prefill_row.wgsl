// Causal attention of prompt rows, for software adapters: what attention_prefill.wgsl computes, without barriers.
//
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t
//   over t <= position - evicted (the row's own entry, kv_table.wgsl) with floor(t / 256) mod 8 = lane, in ascending tiles of
//   KEY_TILE keys aligned to entries. window.wgsl: t from first_seen on, s capped
//   BOTH_WAYS: t up to seen_end; BOUNDED: from seen_start on (runs.wgsl)
//   sinks.wgsl: of the lane with the row's own entry, each head's sink beside the scores
//
// Tensors as in attention_prefill.wgsl. o is accumulated in partial_o itself: no other invocation touches it.
//
// Grid (local lanes, heads, ceil(rows / TILE_ROWS)): a workgroup = TILE_ROWS rows of one head, an invocation = one row, so that the
// invocations of a workgroup read the same keys and values.
// Variants, chosen by index.ts: KEY_TILE a multiple of 4 that divides 256, at most 16 KiB / (4 TILE_ROWS).
// A lane without keys for a row, or that lies elsewhere, and COMPACT: as in attention_prefill.wgsl. Inactive rows: nothing is written.
const TILE_ROWS: u32 = 16; // variant
const KEY_TILE: u32 = 64; // variant
const COMPACT: bool = false; // variant

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

// [key][row]: scores, then weights exp(s - m); each invocation has its own column.
var<workgroup> weights: array<f32, KEY_TILE * TILE_ROWS>;

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

fn key_at(table: u32, cache_head: u32, token: u32) -> u32 {
  return key_base(entry_block(table, token / BLOCK), block_heads(), block_head(cache_head), token % BLOCK);
}

@compute @workgroup_size(TILE_ROWS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let head = group_id.y;
  let cache_kv_head = params.first_kv_head + head / params.group;
  let first_row = group_id.z * TILE_ROWS;
  let row = first_row + thread;

  // The entries that any row of the tile attends to: from `seen` up to `end`.
  var end = 0u;
  var seen = INACTIVE;
  var slot = 0u;
  for (var i = 0u; i < min(params.tile_rows, params.rows - first_row); i++) {
    let info = row_info[first_row + i];
    if (info.x != INACTIVE) {
      end = max(end, info.x + 1u);
      seen = min(seen, info.x);
      slot = info.y;
    }
  }
  if (row >= params.rows) {
    return;
  }
  let position = row_info[row].x;
  if (position == INACTIVE) {
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
  let last = position - gone;
  let limit = seen_end(position, slot) - gone;
  let since = seen_start(last);
  let query = query_unit(row, params.q_units, head, HEAD_UNITS);
  let lane = own_lane(slot, group_id.x);
  var partial_lane = group_id.x;
  if (COMPACT) {
    if (!holds_chunk(table, lane)) {
      return;
    }
    partial_lane = countOneBits(held_lanes(table, lane));
  }
  let partial = partial_at(head, partial_lane) + row * params.row_stride;

  var m = EMPTY_M;
  var l = 0.0;
  for (var unit = 0u; unit < params.head_units; unit++) {
    partial_o[partial * HEAD_UNITS + unit] = vec4<f32>();
  }
  if (!holds_chunk(table, lane)) {
    // Another rank's lane, whole: the empty state.
    end = 0u;
  }
  if (SINKS && end > 0u && last / CHUNK % MERGE_LANES == lane) {
    m = row_sink(row, head);
    l = 1.0;
  }
  var chunk = lane;
  if (WINDOWED) {
    // The first of the lane's chunks that isn't before the window.
    chunk += (max(seen / CHUNK, lane) - lane + MERGE_LANES - 1u) / MERGE_LANES * MERGE_LANES;
  }
  for (; chunk * CHUNK < end; chunk += MERGE_LANES) {
    let chunk_end = min(end, (chunk + 1u) * CHUNK);
    var start = chunk * CHUNK;
    if (WINDOWED) {
      start = max(start, seen / KEY_TILE * KEY_TILE);
    }
    for (; start < chunk_end; start += KEY_TILE) {
      let count = min(KEY_TILE, chunk_end - start);
      var new_m = m;
      for (var key = 0u; key < count; key += 4u) {
        // Keys beyond the tile's rows repeat its last one; they are masked below.
        var token = vec4<u32>(start) + min(vec4<u32>(key) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
        if (WINDOWED) {
          token = max(token, vec4<u32>(seen));
        }
        let k0 = key_at(table, cache_kv_head, token.x);
        let k1 = key_at(table, cache_kv_head, token.y);
        let k2 = key_at(table, cache_kv_head, token.z);
        let k3 = key_at(table, cache_kv_head, token.w);
        var s0 = vec4<f32>();
        var s1 = vec4<f32>();
        var s2 = vec4<f32>();
        var s3 = vec4<f32>();
        for (var unit = 0u; unit < params.head_units; unit++) {
          let own = q[query + unit];
          s0 = fma(own, load_key(k0, unit), s0);
          s1 = fma(own, load_key(k1, unit), s1);
          s2 = fma(own, load_key(k2, unit), s2);
          s3 = fma(own, load_key(k3, unit), s3);
        }
        let scores = cap_scores(params.scale * vec4<f32>(sum4(s0), sum4(s1), sum4(s2), sum4(s3)));
        let keys = vec4<u32>(start + key) + vec4<u32>(0u, 1u, 2u, 3u);
        var masked = select(vec4<f32>(EMPTY_M), scores, keys < vec4<u32>(limit));
        if (WINDOWED) {
          masked = select(vec4<f32>(EMPTY_M), masked, keys >= vec4<u32>(since));
        }
        new_m = max(max(new_m, max(masked.x, masked.y)), max(masked.z, masked.w));
        let to = key * TILE_ROWS + thread;
        weights[to] = masked.x;
        weights[to + TILE_ROWS] = masked.y;
        weights[to + 2u * TILE_ROWS] = masked.z;
        weights[to + 3u * TILE_ROWS] = masked.w;
      }
      let old_weight = softmax_weight(m, new_m);
      m = new_m;
      var added = 0.0;
      for (var key = 0u; key < count; key++) {
        let score = weights[key * TILE_ROWS + thread];
        let weight = select(exp(score - m), 0.0, score == EMPTY_M);
        weights[key * TILE_ROWS + thread] = weight;
        added += weight;
      }
      l = fma(l, old_weight, added);
      for (var unit = 0u; unit < params.head_units; unit++) {
        var o = partial_o[partial * HEAD_UNITS + unit] * old_weight;
        for (var key = 0u; key < count; key++) {
          var token = start + key;
          if (WINDOWED) {
            token = max(token, seen);
          }
          let base = value_base(entry_block(table, token / BLOCK), block_heads(), block_head(cache_kv_head), token % BLOCK);
          o = fma(vec4<f32>(weights[key * TILE_ROWS + thread]), load_value(base, unit), o);
        }
        // Never -0, whose sign could depend on the masked values added with weight 0.
        partial_o[partial * HEAD_UNITS + unit] = select(o, vec4<f32>(), o == vec4<f32>());
      }
    }
  }
  partial_ml[partial] = vec2<f32>(m, l);
}
