// Prompt rows by the weights of their experts, batched by expert, for hardware adapters.
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
// Grid: x = tile of 32 outputs, y = tile of TILE_ROWS (row, slot)s of one expert (expert_tile.wgsl); those beyond the last
// exit. 8 x 8 invocations of 4 outputs x 4 rows; 32 elements of K at a time go through workgroup memory. K is summed in ascending
// order, one fma an element.
//
// TILE_ROWS 32. SWIGLU: from the problem.
// Empty input: an expert without rows has no tile.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
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

const THREADS: u32 = 64u;
/// vec4s of K that are staged at once; rows are one vec4 longer so that lanes meet different banks.
const STAGED: u32 = 8u;
const PITCH: u32 = 9u;

var<workgroup> tile_pairs: array<u32, TILE_ROWS>;
var<workgroup> x_tile: array<vec4<f32>, TILE_ROWS * PITCH>;
var<workgroup> w_tile: array<vec4<f32>, 32u * PITCH>;
var<workgroup> up_tile: array<vec4<f32>, 32u * PITCH>;

/// Elements 4 * k4 .. 4 * k4 + 3 of a row of x.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return x[row * params.x_stride4 + k4];
}

/// Vec4 `k4` of output `lane` of a tile.
fn load_weight(tile: u32, k4: u32, lane: u32) -> vec4<f32> {
  let index = (tile * params.units + k4 / UNIT4) * 32u + lane;
  return load_part(index, k4 % UNIT4, unit_scale(index));
}

/// sums + 4 elements of K of 4 outputs (the rows of `w`) by those of one row.
fn add(sums: vec4<f32>, w: mat4x4<f32>, v: vec4<f32>) -> vec4<f32> {
  var result = fma(w[0], vec4<f32>(v.x), sums);
  result = fma(w[1], vec4<f32>(v.y), result);
  result = fma(w[2], vec4<f32>(v.z), result);
  return fma(w[3], vec4<f32>(v.w), result);
}

/// Outputs n, n + 8, n + 16 and n + 24 of one row.
fn write_row(expert: u32, row: u32, count: u32, n: u32, sums: vec4<f32>, ups: vec4<f32>) {
  if (row >= count) {
    return;
  }
  let pair = tile_pairs[row];
  let values = select(sums, ups, SWIGLU);
  write_output(pair, expert, n, sums.x, values.x);
  write_output(pair, expert, n + 8u, sums.y, values.y);
  write_output(pair, expert, n + 16u, sums.z, values.z);
  write_output(pair, expert, n + 24u, sums.w, values.w);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let own = find_tile(group.y);
  if (own.expert == params.expert_count) {
    return;
  }
  let tile = own.expert * params.tiles * params.matrices + group.x;
  if (thread < TILE_ROWS) {
    // Rows beyond the count repeat the last one; they aren't written.
    tile_pairs[thread] = pairs[own.first + min(thread, own.count - 1u)];
  }
  let column = thread % 8u;
  let row = thread / 8u;
  var a0 = vec4<f32>();
  var a1 = vec4<f32>();
  var a2 = vec4<f32>();
  var a3 = vec4<f32>();
  var b0 = vec4<f32>();
  var b1 = vec4<f32>();
  var b2 = vec4<f32>();
  var b3 = vec4<f32>();
  let stages = (params.used_units * UNIT4 + STAGED - 1u) / STAGED;
  workgroupBarrier();
  for (var left = stages; left > 0u; left--) {
    let first4 = (stages - left) * STAGED;
    for (var load = 0u; load < TILE_ROWS * STAGED / THREADS; load++) {
      let i = thread + load * THREADS;
      let part = i % STAGED;
      x_tile[i / STAGED * PITCH + part] = load_x(tile_pairs[i / STAGED] / params.x_divisor, first4 + part);
    }
    for (var load = 0u; load < 32u * STAGED / THREADS; load++) {
      let i = thread + load * THREADS;
      let lane = i % 32u;
      let part = i / 32u;
      w_tile[lane * PITCH + part] = load_weight(tile, first4 + part, lane);
      if (SWIGLU) {
        up_tile[lane * PITCH + part] = load_weight(tile + params.tiles, first4 + part, lane);
      }
    }
    workgroupBarrier();
    for (var part = 0u; part < STAGED; part++) {
      let at = column * PITCH + part;
      let x_at = row * PITCH + part;
      let v0 = x_tile[x_at];
      let v1 = x_tile[x_at + 8u * PITCH];
      let v2 = x_tile[x_at + 16u * PITCH];
      let v3 = x_tile[x_at + 24u * PITCH];
      let w = transpose(
        mat4x4<f32>(w_tile[at], w_tile[at + 8u * PITCH], w_tile[at + 16u * PITCH], w_tile[at + 24u * PITCH]),
      );
      a0 = add(a0, w, v0);
      a1 = add(a1, w, v1);
      a2 = add(a2, w, v2);
      a3 = add(a3, w, v3);
      if (SWIGLU) {
        let up = transpose(
          mat4x4<f32>(up_tile[at], up_tile[at + 8u * PITCH], up_tile[at + 16u * PITCH], up_tile[at + 24u * PITCH]),
        );
        b0 = add(b0, up, v0);
        b1 = add(b1, up, v1);
        b2 = add(b2, up, v2);
        b3 = add(b3, up, v3);
      }
    }
    workgroupBarrier();
  }
  let n = group.x * 32u + column;
  write_row(own.expert, row, own.count, n, a0, b0);
  write_row(own.expert, row + 8u, own.count, n, a1, b1);
  write_row(own.expert, row + 16u, own.count, n, a2, b2);
  write_row(own.expert, row + 24u, own.count, n, a3, b3);
}
