// The second half of an RMS norm of q over all heads at once, and of k: in place.
//
//   square_q[r] = squares[0][r][0] + squares[1][r][0] + ...   over all segments of the model, in order (segment_squares)
//   x[r][i]     = (x[r][i] * 1 / sqrt(square_q[r] / q_total + eps)) * weight[i]      for i < k_start
//   x[r][i]     = the same with square_k = squares[...][r][1] and k_total            for k_start <= i < width
//
// x:       [rows][stride] f32: this rank's q, then its k; elements from width on are never written
// squares: [segments][rows][squares_stride] f32
// weight:  [width] f32
//
// Grid: x = ceil(width / (WORKGROUP * PER_THREAD)), y = row.
// WORKGROUP: invocations per workgroup, 1..256; PER_THREAD: elements per invocation, from 1. Chosen by the plan from the adapter.
// Empty input: rows = 0 dispatches nothing.

const WORKGROUP: u32 = 256u; // variant
const PER_THREAD: u32 = 1u; // variant

@group(0) @binding(0) var<storage, read> squares: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

struct Params {
  rows: u32,
  segments: u32,
  squares_stride: u32,
  width: u32,
  k_start: u32,
  stride: u32,
  q_total: f32,
  k_total: f32,
  eps: f32,
}
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  var sums = vec2<f32>();
  var at = group.y * params.squares_stride;
  for (var left = params.segments; left >= 1u; left--) {
    sums += vec2<f32>(squares[at], squares[at + 1u]);
    at += params.rows * params.squares_stride;
  }
  let scales = inverseSqrt(sums / vec2<f32>(params.q_total, params.k_total) + params.eps);
  let row = group.y * params.stride;
  var i = group.x * WORKGROUP * PER_THREAD + thread;
  for (var left = min(PER_THREAD, steps(i, params.width, WORKGROUP)); left >= 1u; left--) {
    x[row + i] = (x[row + i] * select(scales.x, scales.y, i >= params.k_start)) * weight[i];
    i += WORKGROUP;
  }
}
