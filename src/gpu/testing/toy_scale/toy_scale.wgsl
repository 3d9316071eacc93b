// The smallest kernel that has all parts: a vector times a number.
//
//   out[i] = factor * x[i]
//
// x, out: [length] f32
//
// Grid: x = ceil(length / WORKGROUP).
// WORKGROUP: invocations of a workgroup, 1..256. Chosen by the plan.
// Empty input: length = 0 dispatches nothing.

const WORKGROUP: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

struct Params {
  length: u32,
  factor: f32,
}
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.length) {
    out[id.x] = params.factor * x[id.x];
  }
}
