// What goes into a projection whose activations have bounds, or comes out of it.
//
//   out[r][i] = clip(x[r][x_offset + i], bounds)
//   GATED: out[r][i] = gelu(clip(x[r][x_offset + i], bounds)) * clip(x[r][up_offset + i], up_bounds)
//   SILU:  out[r][i] = silu(clip(x[r][x_offset + i], bounds))
//   ADDS:  out[r][i] is added to
//   clip(v, at) = min(max(v, bounds[at]), bounds[at + 1])
//
// x:      [rows][x_stride] f32
// bounds: f32, pairs (least, most)
// out:    [rows][out_stride] f32; written are `width` elements from out_offset on
//
// Grid: x = ceil(width / (WORKGROUP * PER_THREAD)), y = row. Joined after gelu.wgsl and silu.wgsl.
// WORKGROUP: invocations per workgroup, 1..256; PER_THREAD: elements per invocation, from 1. Chosen by the plan from the adapter.
// Empty input: rows = 0 dispatches nothing.

const GATED: bool = false; // variant
const SILU: bool = false; // variant
const ADDS: bool = false; // variant
const WORKGROUP: u32 = 256u; // variant
const PER_THREAD: u32 = 1u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> bounds: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Params {
  width: u32,
  x_stride: u32,
  x_offset: u32,
  up_offset: u32,
  out_stride: u32,
  out_offset: u32,
  // Elements of `bounds`.
  bounds_at: u32,
  up_bounds_at: u32,
}
@group(0) @binding(3) var<uniform> params: Params;

fn clip(value: f32, at: u32) -> f32 {
  return min(max(value, bounds[at]), bounds[at + 1u]);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y * params.x_stride;
  let to = group.y * params.out_stride + params.out_offset;
  var i = group.x * WORKGROUP * PER_THREAD + thread;
  for (var left = min(PER_THREAD, steps(i, params.width, WORKGROUP)); left > 0u; left--) {
    var value = clip(x[row + params.x_offset + i], params.bounds_at);
    if (GATED) {
      value = gelu(value) * clip(x[row + params.up_offset + i], params.up_bounds_at);
    }
    if (SILU) {
      value = silu(value);
    }
    if (ADDS) {
      value += out[to + i];
    }
    out[to + i] = value;
    i += WORKGROUP;
  }
}
