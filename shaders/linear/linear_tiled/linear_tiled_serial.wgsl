// A linear layer for many rows (prompt tokens): out = x W^T, for software adapters.
//
//   out[r][n] (+)= sum_s sum_{k in segment s} W[n][k] x[r][k] + bias[n]
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = silu(gate) * up (linear/swiglu.wgsl)
//
// x:      [rows][x_stride4 * 4] f32; a rank's slice starts at element 4 * x_start4 of the contraction
// weight: packed tiles of 32 output rows (pack.ts), 16-byte units; SWIGLU: tiles of gate rows, then as many of up rows
// scale:  f16 scales of q8 and q4
// bias:   [out_features] f32 (SWIGLU: [gate padded to 32, then up])
// out:    [rows][out_stride] f32, or [segment_count][rows][out_stride] with SEGMENTS_OUT; elements from out_features on are
//         never written
//
// Grid: x = tile of 32 outputs, y = pair of rows. One invocation computes 4 outputs of both rows (serial.wgsl): the units of a
// segment in order, (x + y) + (z + w) of their vec4, then the segments in a tree. ALIGNED: no segment boundary cuts a unit.
// SWIGLU: from the problem.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const SWIGLU: bool = false; // variant
const SERIAL_ROWS: u32 = 2u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  model_in_features: u32,
  units: u32,
  first_unit: u32,
  unit_vec4s: u32,
  x_stride4: u32,
  x_start4: u32,
  out_stride: u32,
  out_offset: u32,
  segment_total: u32,
  segment_align: u32,
  segment_first: u32,
  segment_count: u32,
  eps: f32,
  out_scale: f32,
}
@group(0) @binding(5) var<uniform> params: Params;

fn write_row(row: u32, n: u32, sums: vec4<f32>, gates: vec4<f32>) {
  if (row >= params.rows) {
    return;
  }
  for (var o = 0u; o < 4u; o++) {
    let at = n + o * SERIAL_STEP;
    if (at >= params.out_features) {
      break;
    }
    if (SWIGLU) {
      write_swiglu(row, at, gates[o], sums[o]);
    } else {
      write_output(row, at, sums[o]);
    }
  }
}

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let top_row = group.y * SERIAL_ROWS;
  // Of gate, and of the last matrix. One call of contract compiles in half the time of two.
  var gates = mat2x4<f32>();
  var sums = mat2x4<f32>();
  for (var matrix = 0u; matrix < select(1u, 2u, SWIGLU); matrix++) {
    gates = sums;
    sums = contract(matrix * groups.x + group.x, thread, top_row);
  }
  if (!SEGMENTS_OUT) {
    write_row(top_row, group.x * 32u + thread, sums[0], gates[0]);
    write_row(top_row + 1u, group.x * 32u + thread, sums[1], gates[1]);
  }
}
