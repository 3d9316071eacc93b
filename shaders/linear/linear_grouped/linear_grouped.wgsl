// One matrix a group, applied to the group's slice of each row: MLA's absorb and up-projection, a group a head; for
// hardware adapters.
//
//   out[r][g][n] = sum_k W[g][n][k] x[r][g][k]
//
// x:       [rows][x_stride4 * 4] f32; slice of group g at element 4 * (x_start4 + g * x_group4), x_vec4s * 4 long; nothing
//          beyond a slice is read
// weight:  packed tiles of 32 output rows (pack.ts), 16-byte units; group g starts at tile g * (tiles of a group)
// scale:   f16 scales of q8 and q4
// out:     [rows][out_stride] f32; output n of group g at out_offset + g * out_group + n; nothing else is written
//
// Grid: x = OUTS outputs (contract.wgsl, which also says in what order is summed), y = group, z = tile of TILE_ROWS rows.
//
// MASKED: the last unit reaches beyond the slice.
// Empty input: rows = 0 dispatches nothing.

const MASKED: bool = false; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  x_vec4s: u32,
  units: u32,
  tile_units: u32,
  x_stride4: u32,
  x_start4: u32,
  x_group4: u32,
  out_stride: u32,
  out_offset: u32,
  out_group: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

// The group's slice in row 0, in vec4s.
var<private> slice_start4: u32 = 0u;

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  if (MASKED && k4 >= params.x_vec4s) {
    return vec4<f32>();
  }
  return x[row * params.x_stride4 + slice_start4 + k4];
}

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  slice_start4 = params.x_start4 + group.y * params.x_group4;
  group_outputs(group, local, thread);
}
