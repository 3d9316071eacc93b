// Adds the outputs of a row's experts to the residual stream.
//
//   x[r][i] += ((w[r][0] o[r][0][i] + w[r][1] o[r][1][i]) + w[r][2] o[r][2][i]) + ...
//
// expert_out:     [rows][top_k][in_stride] f32; slots are in ascending order of their experts (moe_route)
// expert_weights: [rows][top_k] f32
// x:              [rows][stride] f32; elements at and beyond width are never written
//
// Grid: x = ceil(width / (WORKGROUP * per_thread)), y = row. The slots are added by one fma each, from the first on, then
// their sum to x.
// WORKGROUP: invocations a workgroup, 1..256; per_thread: elements an invocation. By the adapter; no bit changes.
// Empty input: rows = 0 dispatches nothing; top_k and width are at least 1.

const WORKGROUP: u32 = 128u; // variant

@group(0) @binding(0) var<storage, read> expert_out: array<f32>;
@group(0) @binding(1) var<storage, read> expert_weights: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

struct Params {
  top_k: u32,
  width: u32,
  in_stride: u32,
  stride: u32,
  per_thread: u32,
}
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let first = group.y * params.top_k;
  var i = group.x * WORKGROUP * params.per_thread + thread;
  for (var n = 0u; n < params.per_thread && i < params.width; n++) {
    var sum = 0.0;
    for (var pair = first; pair < first + params.top_k; pair++) {
      sum = fma(expert_weights[pair], expert_out[pair * params.in_stride + i], sum);
    }
    x[group.y * params.stride + i] += sum;
    i += WORKGROUP;
  }
}
