// One matrix a group, applied to the group's slice of each row: MLA's absorb and up-projection, a group a head; for
// software adapters, which pay dearly for barriers.
//
//   out[r][g][n] = sum_k W[g][n][k] x[r][g][k]
//
// x:       [rows][x_stride4 * 4] f32; slice of group g at element 4 * (x_start4 + g * x_group4), x_vec4s * 4 long; nothing
//          beyond a slice is read
// weight:  packed tiles of 32 output rows (pack.ts), 16-byte units; group g starts at tile g * (tiles of a group)
// scale:   f16 scales of q8 and q4
// out:     [rows][out_stride] f32; output n of group g at out_offset + g * out_group + n; nothing else is written
//
// Grid: x = tile of 32 outputs, y = group, z = tile of TILE_ROWS rows. An invocation computes one output: the units in order,
// (x + y) + (z + w) of their vec4.
//
// TILE_ROWS 1, 2, 4, 8: rows sharing one read of the weights; from the problem; changes no bit. MASKED: the last unit reaches
// beyond the slice.
// Empty input: rows = 0 dispatches nothing.

const TILE_ROWS: u32 = 1u; // variant
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

@compute @workgroup_size(32)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let first_row = group.z * TILE_ROWS;
  slice_start4 = params.x_start4 + group.y * params.x_group4;

  let first_unit = (group.y * groups.x + group.x) * params.tile_units;
  var sums = array<vec4<f32>, TILE_ROWS>();
  for (var i = 0u; i < params.units * UNIT_PIECES; i++) {
    let unit = i / UNIT_PIECES;
    let piece = i % UNIT_PIECES;
    let values = load_piece((first_unit + unit) * 32u + lane, piece);
    for (var r = 0u; r < TILE_ROWS; r++) {
      sums[r] = unit_fma(sums[r], values, load_x_unit(first_row + r, unit * UNIT4 + piece * PIECE4));
    }
  }

  let n = group.x * 32u + lane;
  let to = params.out_offset + group.y * params.out_group + n;
  if (n < params.out_features) {
    for (var r = 0u; r < TILE_ROWS; r++) {
      if (first_row + r < params.rows) {
        out[(first_row + r) * params.out_stride + to] = (sums[r].x + sums[r].y) + (sums[r].z + sums[r].w);
      }
    }
  }
}
