// A linear layer for many rows (prompt tokens): out = x W^T, with precision 'fast': rows are rounded, to f16 (half.wgsl) or to 8 bits
// (bytes.wgsl), and so are weights beyond f16; sums are f32.
//
//   out[r][n] (+)= sum_s sum_{k in segment s} W[n][k] x[r][k] + bias[n]
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = silu(gate) * up (linear/swiglu.wgsl)
//
// x:      [rows][x_stride4 * 4] f32, or in bytes (row_vec4s.wgsl); a rank's slice starts at element 4 * x_start4 of the contraction
// weight: packed tiles of 32 output rows (pack.ts), 16-byte units; SWIGLU: tiles of gate rows, then as many of up rows
// scale:  f16 scales of q8 and q4
// bias:   [out_features] f32 (SWIGLU: [gate padded to 32, then up])
// out:    [rows][out_stride] f32, or [segment_count][rows][out_stride] with SEGMENTS_OUT; elements from out_features on are
//         never written
//
// Grid: x = tile of OUTS outputs, y = tile of ROW_TILE rows. A workgroup stages some columns of its weights and rows, counted from
// the contraction's start in the model, in workgroup memory, and asks for the next while it multiplies. A segment is summed in
// ascending k, then the segments in a tree (lib/tree_sum.wgsl, whose sums these are for all of an invocation's outputs at once).
//
// PREFETCH: changes no bit. TREE_LEVELS: 0 for one segment; with SWIGLU, which is from the problem, there is one.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const PREFETCH: bool = true; // variant
const TREE_LEVELS: u32 = 0u; // variant
const SWIGLU: bool = false; // variant

@group(0) @binding(0) var<storage, read> x: array<Rows>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  model_in_features: u32,
  units: u32,
  first_unit: u32,
  unit_vec4s: u32,
  x_stride4: u32,
  x_start4: u32,
  out_stride: u32,
  out_offset: u32,
  segment_total: u32,
  segment_align: u32,
  segment_first: u32,
  segment_count: u32,
  eps: f32,
  out_scale: f32,
}
@group(0) @binding(5) var<uniform> params: Params;

/// Outputs of a tile. With SWIGLU its first half is of gate, the second of up.
const OUTS: u32 = select(OUT_TILE, OUT_TILE / 2u, SWIGLU);

/// The tile's first row and output.
struct Place {
  row: u32,
  n: u32,
}

fn x_at(place: Place, row: u32, k4: u32, columns: Columns) -> vec4<f32> {
  if (place.row + row < params.rows && k4 >= columns.start4 && k4 < columns.end4) {
    return load_x(place.row + row, k4);
  }
  return vec4<f32>();
}

/// Outputs beyond the last repeat it; they aren't written. Units beyond a rank's slice meet rows that are zero.
fn weight_index(place: Place, out: u32, unit: u32) -> u32 {
  let n = min(place.n + out % OUTS, params.out_features - 1u);
  var packed_tile = n / 32u;
  if (SWIGLU && out >= OUTS) {
    packed_tile += (params.out_features + 31u) / 32u;
  }
  return (packed_tile * params.units + unit - params.first_unit) * 32u + n % 32u;
}

/// With SWIGLU `value` is of gate.
fn write_element(place: Place, at: vec2<u32>, segment: u32, value: f32, up: f32) {
  let row = place.row + at.x;
  let n = place.n + at.y;
  if (row >= params.rows || n >= params.out_features || at.y >= OUTS) {
    return;
  }
  if (SEGMENTS_OUT) {
    write_segment(segment, row, n, value);
  } else if (SWIGLU) {
    write_swiglu(row, n, value, up);
  } else {
    write_output(row, n, value);
  }
}

/// Elements of a piece that an invocation takes over, and of all pieces.
const TAKEN: u32 = 4u * PIECE / THREADS;
const ALL_TAKEN: u32 = PIECES * TAKEN;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let place = Place(group.y * ROW_TILE, group.x * OUTS);
  let quarter = quarter_of(thread);
  var totals = array<f32, ALL_TAKEN>();
  // [level][element]: sums that wait for their right neighbours.
  var waiting = array<f32, max(TREE_LEVELS, 1u) * ALL_TAKEN>();
  var s = 0u;
  for (var segments = params.segment_count; segments > 0u; segments--) {
    let segment = params.segment_first + s;
    let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
    let end = segment_start(segment + 1u, params.model_in_features, params.segment_total, params.segment_align);
    var columns = Columns(start / 32u * 8u, start / 4u, (end + 3u) / 4u);
    var sums = Sums();
    var fetched = Fetched();
    if (PREFETCH) {
      fetched = fetch(place, columns, thread);
    }
    for (var left = steps(columns.base4, columns.end4, STAGE4); left > 0u; left--) {
      if (!PREFETCH) {
        fetched = fetch(place, columns, thread);
      }
      put(fetched, thread);
      workgroupBarrier();
      columns.base4 += STAGE4;
      if (PREFETCH && left > 1u) {
        fetched = fetch(place, columns, thread);
      }
      multiply(&sums, quarter, thread);
      workgroupBarrier();
    }
    for (var piece = 0u; piece < PIECES; piece++) {
      hand_over(&sums, piece, quarter, thread);
      workgroupBarrier();
      for (var i = 0u; i < TAKEN; i++) {
        let at = i * THREADS + thread;
        let value = piece_sums[at];
        if (SEGMENTS_OUT || TREE_LEVELS == 0u) {
          // Up's quarters lie beside those of gate.
          write_element(place, place_of(piece, at), s, value, piece_sums[min(at + PIECE, 4u * PIECE - 1u)]);
        } else {
          totals[piece * TAKEN + i] = value;
        }
      }
      workgroupBarrier();
    }
    if (!SEGMENTS_OUT) {
      // Without branches, behind which compilers copy all of it. -0 changes no sum.
      let waits_at = countTrailingZeros(~s);
      for (var level = 0u; level < TREE_LEVELS; level++) {
        let adds = ((s >> level) & 1u) != 0u && (level < waits_at || segments == 1u);
        for (var i = 0u; i < ALL_TAKEN; i++) {
          let at = level * ALL_TAKEN + i;
          totals[i] = select(bitcast<f32>(0x80000000u), waiting[at], adds) + totals[i];
          waiting[at] = select(waiting[at], totals[i], level == waits_at);
        }
      }
    }
    s++;
  }
  if (!SEGMENTS_OUT && TREE_LEVELS > 0u) {
    for (var piece = 0u; piece < PIECES; piece++) {
      for (var i = 0u; i < TAKEN; i++) {
        write_element(place, place_of(piece, i * THREADS + thread), 0u, totals[piece * TAKEN + i], 0.0);
      }
    }
  }
}
