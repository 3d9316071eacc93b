// Prompt rows by the weights of their experts, batched by expert, with precision 'fast': rows are rounded, to f16 (half.wgsl) or to
// 8 bits (bytes.wgsl), and so are weights beyond f16; sums are f32.
//
//   out[r][s][n] = sum_k W[expert of (r, s)][n][k] x[r][k]           (x[r][s][k] where x_divisor is 1)
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = gate / (1 + exp(-gate)) * up; CLAMPED: expert_output.wgsl
//   BIASED: each sum plus its bias
//
// x:          [rows][x_stride4 * 4] f32, or with x_divisor 1 [rows][top_k][x_stride4 * 4]; padded with zeros to 32 elements
// weight:     experts expert_first .. expert_first + expert_count - 1, `tiles` packed tiles of 32 outputs each
//             (linear/pack.ts); SWIGLU: tiles of gate rows, then as many of up rows
// scale:      f16 scales of q8 and q4, bytes of mxfp4
// pairs:       [experts][rows] u32: each expert's (row, slot)s, as row * top_k + slot (moe_sort)
// pair_counts: [experts] u32
// bias:       [experts of the rank][matrices][32 tiles] f32, the shard's from expert bias_first on; only with BIASED
// out:        [rows][top_k][out_stride] f32; elements from out_features on, and (row, slot)s whose expert is not in this buffer,
//             are never written
//
// Grid: x = 64 outputs, or with SWIGLU 32 of gate and 32 of up; y = tile of TILE_ROWS (row, slot)s of one expert (expert_tile.wgsl);
// those beyond the last exit. K is summed in ascending order.
//
// OUT_TILE 64, ROW_TILE = TILE_ROWS = 32. PREFETCH: changes no bit. SWIGLU: from the problem.
// Empty input: an expert without rows has no tile.

const PREFETCH: bool = true; // variant

@group(0) @binding(0) var<storage, read> x: array<Rows>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> pairs: array<u32>;
@group(0) @binding(4) var<storage, read> pair_counts: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  x_divisor: u32,
  top_k: u32,
  expert_first: u32,
  expert_count: u32,
  tiles: u32,
  matrices: u32,
  units: u32,
  used_units: u32,
  x_stride4: u32,
  out_features: u32,
  out_stride: u32,
  bias_first: u32,
  alpha: f32,
  limit: f32,
}
@group(0) @binding(7) var<uniform> params: Params;

/// Packed tiles of the two halves of a tile's outputs.
struct Place {
  first_tile: u32,
  second_tile: u32,
}

var<workgroup> tile_pairs: array<u32, TILE_ROWS>;

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return x[row * params.x_stride4 + k4];
}

fn x_at(place: Place, row: u32, k4: u32, columns: Columns) -> vec4<f32> {
  if (k4 < columns.end4) {
    return load_x(tile_pairs[row] / params.x_divisor, k4);
  }
  return vec4<f32>();
}

/// Units beyond a row's last meet rows that are zero.
fn weight_index(place: Place, out: u32, unit: u32) -> u32 {
  let packed_tile = select(place.second_tile, place.first_tile, out < 32u);
  return (packed_tile * params.units + unit) * 32u + out % 32u;
}

/// Outputs of a piece: with SWIGLU two quarters of gate, whose up is in the quarter beside theirs.
const WRITTEN: u32 = select(4u, 2u, SWIGLU) * PIECE;
const WRITES: u32 = (WRITTEN + THREADS - 1u) / THREADS;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let own = find_tile(group.y);
  let quarter = quarter_of(thread);
  let tile_index = own.expert * params.tiles * params.matrices;
  var place = Place(tile_index + group.x, tile_index + params.tiles + group.x);
  if (!SWIGLU) {
    // An odd last tile repeats itself; that isn't written.
    place = Place(tile_index + 2u * group.x, tile_index + min(2u * group.x + 1u, params.tiles - 1u));
  }
  if (own.expert == params.expert_count) {
    return;
  }
  if (thread < TILE_ROWS) {
    // Rows beyond the count repeat the last one; they aren't written.
    tile_pairs[thread] = pairs[own.first + min(thread, own.count - 1u)];
  }
  workgroupBarrier();
  var columns = Columns(0u, 0u, params.units * UNIT4);
  var sums = Sums();
  var fetched = Fetched();
  if (PREFETCH) {
    fetched = fetch(place, columns, thread);
  }
  for (var left = steps(0u, columns.end4, STAGE4); left > 0u; left--) {
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
    for (var i = 0u; i < WRITES; i++) {
      let element = i * THREADS + thread;
      var at = element;
      var up = 0.0;
      if (SWIGLU) {
        at = element / PIECE * 2u * PIECE + element % PIECE;
        up = piece_sums[min(at, 3u * PIECE - 1u) + PIECE];
      }
      let where_to = place_of(piece, at);
      if (element < WRITTEN && where_to.x < own.count) {
        let pair = tile_pairs[where_to.x];
        let sum = piece_sums[at];
        write_output(pair, own.expert, group.x * select(64u, 32u, SWIGLU) + where_to.y, sum, select(sum, up, SWIGLU));
      }
    }
    workgroupBarrier();
  }
}
