// Adds up the segments that ranks of a split contraction computed (linear and linear_tiled with output 'segments').
//
//   out[r][n] (+)= ((s_0 + s_1) + (s_2 + s_3)) + ... + bias[n], in a tree (lib/tree_sum.wgsl)
//
// The same bits as one rank that computes the whole contraction.
//
// segments: [parts][rows][in_stride] f32, in the model's order: sums of segments, or of subtrees of them. Of `segment_count` segments those
//           begin one whose bit is set in begins_0 .. begins_3
// bias:     [out_features] f32
// out:      [rows][out_stride] f32; elements from out_features on are never written
//
// Grid: x = 64 outputs, y = row. RESIDUAL, BIAS, TREE_LEVELS: from the problem.
// Empty input: rows = 0 dispatches nothing; there is at least one segment.

const TREE_LEVELS: u32 = 0u; // variant

alias Summed = f32;

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
  begins_0: u32,
  begins_1: u32,
  begins_2: u32,
  begins_3: u32,
  out_scale: f32,
}
@group(0) @binding(3) var<uniform> params: Params;

fn begins(segment: u32) -> bool {
  let low = select(params.begins_1, params.begins_0, segment < 32u);
  let high = select(params.begins_3, params.begins_2, segment < 96u);
  return ((select(high, low, segment < 64u) >> (segment % 32u)) & 1u) != 0u;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let n = id.x;
  let row = id.y;
  if (n >= params.out_features || row >= params.rows) {
    return;
  }
  let first = row * params.in_stride + n;
  var tree = Tree();
  var sum = 0.0;
  var part = 0u;
  var begun = 0u;
  for (var left = params.segment_count; left > 0u; left--) {
    let next = params.segment_count - left + 1u;
    if (left == 1u || begins(next)) {
      let value = segments[first + part * params.rows * params.in_stride];
      sum = tree_sum(&tree, begun, 32u - countLeadingZeros(next - begun - 1u), left > 1u, value);
      part++;
      begun = next;
    }
  }
  write_output(row, n, sum);
}
