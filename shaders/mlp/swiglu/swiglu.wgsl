// Gated activation of a feed-forward layer: SwiGLU, or GELU (gelu.wgsl) of the gate.
//
//   out[r][i] = silu(gate_up[r][i]) * gate_up[r][up_offset + i],  silu(g) = g / (1 + exp(-g)); GELU: gelu_tanh for silu
//
// gate_up: [rows][in_stride] f32; the gate at 0..width-1, the up projection at up_offset..up_offset+width-1
// out:     [rows][out_stride] f32; elements at and beyond width are never written
//
// Grid: x = ceil(width / (WORKGROUP * PER_THREAD)), y = row.
// WORKGROUP: invocations per workgroup, 1..256; PER_THREAD: elements per invocation, from 1. Chosen by the plan from the adapter.
// GELU: from the problem.
// Empty input: rows = 0 dispatches nothing; width is at least 1.

const WORKGROUP: u32 = 256u; // variant
const PER_THREAD: u32 = 1u; // variant
const GELU: bool = false; // variant

@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

struct Params {
  width: u32,
  in_stride: u32,
  up_offset: u32,
  out_stride: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let gate = group.y * params.in_stride;
  let up = gate + params.up_offset;
  let target_row = group.y * params.out_stride;
  var i = group.x * WORKGROUP * PER_THREAD + thread;
  for (var left = min(PER_THREAD, steps(i, params.width, WORKGROUP)); left > 0u; left--) {
    if (GELU) {
      out[target_row + i] = gelu_tanh(gate_up[gate + i]) * gate_up[up + i];
    } else {
      out[target_row + i] = silu(gate_up[gate + i]) * gate_up[up + i];
    }
    i += WORKGROUP;
  }
}
