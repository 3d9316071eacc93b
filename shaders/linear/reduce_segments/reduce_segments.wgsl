// Adds up the segments that ranks of a split contraction computed (linear and linear_tiled with output 'segments').
//
//   out[r][n] (+)= ((s_0 + s_1) + s_2) ... + bias[n]
//
// The same bits as one rank that computes the whole contraction.
//
// segments: [segment_count][rows][in_stride] f32, in the model's order
// bias:     [out_features] f32
// out:      [rows][out_stride] f32; elements from out_features on are never written
//
// Grid: x = 64 outputs, y = row. RESIDUAL, BIAS: from the problem.
// Empty input: rows = 0 dispatches nothing; there is at least one segment.

@group(0) @binding(0) var<storage, read> segments: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  in_stride: u32,
  out_stride: u32,
  out_offset: u32,
  segment_count: u32,
  out_scale: f32,
}
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let n = id.x;
  let row = id.y;
  if (n >= params.out_features || row >= params.rows) {
    return;
  }
  let first = row * params.in_stride + n;
  var sum = segments[first];
  for (var left = max(params.segment_count, 1u) - 1u; left > 0u; left--) {
    sum += segments[first + (params.segment_count - left) * params.rows * params.in_stride];
  }
  write_output(row, n, sum);
}
