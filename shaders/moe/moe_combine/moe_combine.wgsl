// Adds the outputs of a row's experts to the residual stream.
//
//   x[r][i] += ((w[r][0] o[r][0][i] + w[r][1] o[r][1][i]) + w[r][2] o[r][2][i]) + ...      APART: x becomes that
//
// expert_out:     [rows][top_k][in_stride] f32; slots are in ascending order of their experts (moe_route)
//                 SPREAD: [ranks] of that, each `region` elements; a slot's output is in the region of its expert's owner, and
//                 what other regions hold for it is not read
// expert_weights: [rows][top_k] f32
// expert_ids:     [rows][top_k] u32; read only with SPREAD
// owners:         [experts] u32, the region of each expert; read only with SPREAD
// x:              [rows][stride] f32; elements at and beyond width are never written
//
// Grid: x = ceil(width / (WORKGROUP * per_thread)), y = row. The slots are added by one fma each, from the first on, then
// their sum to x: the same bits whoever computed them.
// WORKGROUP: invocations per workgroup, 1..256; per_thread: elements per invocation. By the adapter; no bit changes.
// SPREAD: experts are spread over ranks; from the problem.
// Empty input: rows = 0 dispatches nothing; top_k and width are at least 1.

const WORKGROUP: u32 = 128u; // variant
const SPREAD: bool = false; // variant
const APART: bool = false; // variant

@group(0) @binding(0) var<storage, read> expert_out: array<f32>;
@group(0) @binding(1) var<storage, read> expert_weights: array<f32>;
@group(0) @binding(2) var<storage, read> expert_ids: array<u32>;
@group(0) @binding(3) var<storage, read> owners: array<u32>;
@group(0) @binding(4) var<storage, read_write> x: array<f32>;

struct Params {
  top_k: u32,
  width: u32,
  in_stride: u32,
  stride: u32,
  per_thread: u32,
  region: u32,
}
@group(0) @binding(5) var<uniform> params: Params;

// Where the output of a (row, slot) starts.
fn output_start(pair: u32) -> u32 {
  if (SPREAD) {
    return owners[expert_ids[pair]] * params.region + pair * params.in_stride;
  }
  return pair * params.in_stride;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let first = group.y * params.top_k;
  var i = group.x * WORKGROUP * params.per_thread + thread;
  for (var left = min(params.per_thread, steps(i, params.width, WORKGROUP)); left > 0u; left--) {
    var sum = 0.0;
    for (var slots = params.top_k; slots > 0u; slots--) {
      let pair = first + params.top_k - slots;
      sum = fma(expert_weights[pair], expert_out[output_start(pair) + i], sum);
    }
    let at = group.y * params.stride + i;
    if (APART) {
      x[at] = sum;
    } else {
      x[at] += sum;
    }
    i += WORKGROUP;
  }
}
