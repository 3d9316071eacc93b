// What attention gives, times the sigmoid of a gate: in place.
//
//   x[r][i] <- x[r][i] * sigmoid(gate[r][gate_offset + i * gate_step])
//   OPEN: without the sigmoid; ACTIVATED: silu or, GELU, gelu (gelu.wgsl) for the sigmoid
//
// x:    [rows][stride] f32; elements at and beyond width are never written
// gate: [rows][gate_stride] f32; gate_step is 1, or 0: one gate per row
//
// Grid: x = ceil(width / (WORKGROUP * PER_THREAD)), y = row.
// WORKGROUP: invocations per workgroup, 1..256; PER_THREAD: elements per invocation, from 1. Chosen by the plan from the adapter.
// Empty input: rows = 0 dispatches nothing.

const OPEN: bool = false; // variant
const ACTIVATED: bool = false; // variant
const GELU: bool = false; // variant
const WORKGROUP: u32 = 256u; // variant
const PER_THREAD: u32 = 1u; // variant

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

struct Params {
  width: u32,
  stride: u32,
  gate_stride: u32,
  gate_offset: u32,
  gate_step: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y * params.stride;
  let gates = group.y * params.gate_stride + params.gate_offset;
  var i = group.x * WORKGROUP * PER_THREAD + thread;
  for (var left = min(PER_THREAD, steps(i, params.width, WORKGROUP)); left > 0u; left--) {
    let g = gate[gates + i * params.gate_step];
    var factor = g;
    if (ACTIVATED) {
      if (GELU) {
        factor = gelu(g);
      } else {
        factor = silu(g);
      }
    } else if (!OPEN) {
      factor = sigmoid(g);
    }
    x[row + i] *= factor;
    i += WORKGROUP;
  }
}
