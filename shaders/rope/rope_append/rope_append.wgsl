// Per-head RMS norm (QK_NORM) and RoPE of q and k, and the append of k and v to the paged KV cache.
//
//   y   = x * w / sqrt(mean(x^2) + eps)                     (QK_NORM; otherwise y = x)
//   out[i]       = y[i] cos(i) - y[i + r/2] sin(i)
//   out[i + r/2] = y[i + r/2] cos(i) + y[i] sin(i)          i < r/2, half-split pairs of the first r = ROTARY elements
//   out[i]       = y[i]                                     i >= r; v is copied unchanged, with VALUE_NORM y for w = 1
//
// Where a rank without weights keeps the rows' cache, the rank that has them normalises and rotates (KEEP_KEYS: k also in
// place, with VALUE_NORM v too), the rows travel, and there k and v are appended as they are (READY: no norm, no rotation, q isn't
// touched).
//
// qkv          [rows][row_units*4] f32: heads q vectors, kv_heads k, kv_heads v of HEAD_DIM each; q is written back in place. Or in
//              pieces (query_pieces.wgsl), each of them so, with the kv heads of its query heads
// rope_table   [position][ROTARY/2] (cos, sin) f32, or [position][k, q][ROTARY/2] (QUERY_ROWS), then spans (head_rope.wgsl); not read
//              where ROTARY is 0
// q_norm       [HEAD_DIM] f32, k_norm the same; read only with QK_NORM
// row_info     [rows] (position, slot); position INACTIVE: the row is skipped
// block_table  see kv_table.wgsl; NO_BLOCK: the row's k and v are of another rank's cache
// k_cache, v_cache   see kv_layout.wgsl, KvUnit; of cache_kv_heads heads, written are kv_heads from first_kv_head on
// QUERIES_ONLY: qkv has q alone, and nothing is appended.
//
// Grid (ceil((heads + 2 kv_heads) / HEAD_TILE), rows, 1): a workgroup = HEAD_TILE vectors of a row, LANES threads each; READY: of k
// and v alone.
// Variants: ROTARY (head_rope.wgsl), a multiple of 8 up to HEAD_DIM; HEAD_TILE * LANES <= 256; LANES divides HEAD_DIM/8, 1 for
// software adapters (no barrier); chosen by index.ts.
// Into a cache with scales (kv_q8.wgsl) vectors go by way of workgroup memory (kv_stage.wgsl).
// Inactive rows: nothing is read or written. Rows without a block: only q is, and k in place.
const LANES: u32 = 8; // variant
const HEAD_TILE: u32 = 8; // variant
const QK_NORM: bool = true; // variant
const VALUE_NORM: bool = false; // variant
const KEEP_KEYS: bool = false; // variant
const READY: bool = false; // variant
const QUERIES_ONLY: bool = false; // variant
const THREADS: u32 = HEAD_TILE * LANES;
const HALF_UNITS: u32 = HEAD_UNITS / 2u;

struct Params {
  heads: u32,
  kv_heads: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  row_units: u32,
  // See query_pieces.wgsl.
  piece_units: u32,
  piece_1: u32,
  piece_2: u32,
  piece_3: u32,
  piece_4: u32,
  piece_5: u32,
  piece_6: u32,
  piece_7: u32,
  table_stride: u32,
  // HALF_UNITS as a bound that compilers don't unroll: lavapipe would compile for many seconds.
  half_units: u32,
  eps: f32,
}

@group(0) @binding(0) var<storage, read_write> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> rope_table: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> q_norm: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> k_norm: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> block_table: array<u32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<KvUnit>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<KvUnit>;
@group(0) @binding(8) var<uniform> params: Params;

// With PIECES: unit 0 of a row's vector, of all q, then all k, then all v.
fn vector_unit(row: u32, vector: u32) -> u32 {
  let group = params.heads / params.kv_heads;
  let is_query = vector < params.heads;
  let kv_head = (vector - params.heads) % params.kv_heads;
  let head = select(kv_head * group, vector, is_query);
  let piece = query_piece(head);
  var place = head - piece.start;
  if (!is_query) {
    // Behind the piece's q, and v behind its k.
    let is_value = vector >= params.heads + params.kv_heads;
    let heads = piece.end - piece.start;
    place = heads + place / group + select(0u, heads / group, is_value);
  }
  return piece.base + row * params.row_units + place * HEAD_UNITS;
}

var<workgroup> squares: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group_id.y;
  let position = row_info[row].x;
  if (position == INACTIVE) {
    return;
  }
  let vector = group_id.x * HEAD_TILE + thread / LANES + select(0u, params.heads, READY);
  let lane = thread % LANES;
  let exists = vector < params.heads + select(2u * params.kv_heads, 0u, QUERIES_ONLY);
  let is_query = vector < params.heads;
  let is_value = vector >= params.heads + params.kv_heads;
  var base = row * params.row_units + vector * HEAD_UNITS;
  if (PIECES) {
    base = vector_unit(row, vector);
  }

  var inverse = 1.0;
  if (QK_NORM) {
    var total = 0.0;
    if (exists && (VALUE_NORM || !is_value)) {
      total = head_squares(base, lane);
    }
    if (LANES > 1u) {
      squares[thread] = total;
      workgroupBarrier();
      total = 0.0;
      for (var i = 0u; i < LANES; i++) {
        total += squares[thread - lane + i];
      }
    }
    inverse = head_inverse(total);
  }

  // Of k and v; q has none.
  let head = params.first_kv_head + select((vector - params.heads) % params.kv_heads, 0u, is_query);
  let table = head_table(row_info[row].y, head);
  let entry = position - evicted_entries(table);
  let physical = entry_block(table, entry / BLOCK);
  let appends = exists && !is_query && physical != NO_BLOCK;
  let offset = entry % BLOCK;
  let key_to = key_base(physical, block_heads(), block_head(head), offset);
  let value_to = value_base(physical, block_heads(), block_head(head), offset);
  let staged = thread / LANES * HEAD_UNITS;
  if (exists && is_value && (appends || (VALUE_NORM && KEEP_KEYS))) {
    var unit = lane;
    for (var left = steps(lane, 2u * params.half_units, LANES); left > 0u; left--) {
      var value = qkv[base + unit];
      if (VALUE_NORM) {
        value *= inverse;
        if (KEEP_KEYS) {
          qkv[base + unit] = value;
        }
      }
      if (KV_SCALED && appends) {
        kv_staged[staged + unit] = value;
      } else if (appends) {
        v_cache[value_to + unit] = kv_pack(value, 1.0);
      }
      unit += LANES;
    }
  }
  var positions = vec3<u32>();
  if (!READY) {
    positions = rope_positions(row_info[row]);
  }
  let turns = exists && !is_value && (is_query || appends || KEEP_KEYS);
  var unit = lane;
  for (var left = select(0u, steps(lane, params.half_units, LANES), turns); left > 0u; left--) {
    let units = pair_units(unit);
    let low_unit = units.x;
    let high_unit = units.y;
    var low = qkv[base + low_unit];
    var high = qkv[base + high_unit];
    if (QK_NORM) {
      if (is_query) {
        low = (low * inverse) * q_norm[low_unit];
        high = (high * inverse) * q_norm[high_unit];
      } else {
        low = (low * inverse) * k_norm[low_unit];
        high = (high * inverse) * k_norm[high_unit];
      }
    }
    var rotated_low = low;
    var rotated_high = high;
    if (!READY && rotates(unit)) {
      let rotated = turn(low, high, positions, unit, is_query);
      rotated_low = rotated.low;
      rotated_high = rotated.high;
    }
    if (is_query || KEEP_KEYS) {
      qkv[base + low_unit] = rotated_low;
      qkv[base + high_unit] = rotated_high;
    }
    if (appends) {
      if (KV_SCALED) {
        kv_staged[staged + low_unit] = rotated_low;
        kv_staged[staged + high_unit] = rotated_high;
      } else {
        k_cache[key_to + low_unit * BLOCK] = kv_pack(rotated_low, 1.0);
        k_cache[key_to + high_unit * BLOCK] = kv_pack(rotated_high, 1.0);
      }
    }
    unit += LANES;
  }
  if (KV_SCALED) {
    if (LANES > 1u) {
      workgroupBarrier();
    }
    unit = lane;
    for (var left = select(0u, steps(lane, kv_stored_units(HEAD_UNITS), LANES), appends); left > 0u; left--) {
      let stored = kv_staged_unit(staged, HEAD_UNITS, unit);
      if (is_value) {
        v_cache[value_to + unit] = stored;
      } else {
        k_cache[key_to + unit * BLOCK] = stored;
      }
      unit += LANES;
    }
  }
}
