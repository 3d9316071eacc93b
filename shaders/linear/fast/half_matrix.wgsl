// Products of f16 numbers (half.wgsl), summed in f32 by the matrix units of 4 subgroups; k ascends by MATRIX_DEPTH, whose sums the
// hardware orders. Its twin in plain WGSL is half_plain.wgsl with held.wgsl.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
// A subgroup has a quarter by its number, which compilers can't see.
diagnostic(off, chromium.subgroup_matrix_uniformity);

/// The shape of a product, from the adapter: MATRIX_ROWS x MATRIX_DEPTH times MATRIX_DEPTH x MATRIX_OUTS.
const MATRIX_ROWS: u32 = 16u; // variant
const MATRIX_OUTS: u32 = 16u; // variant
const MATRIX_DEPTH: u32 = 16u; // variant

const PIECE_ROWS: u32 = MATRIX_ROWS;
const PIECE_OUTS: u32 = MATRIX_OUTS;
const HELD_ROWS: u32 = QUARTER_ROWS / MATRIX_ROWS;
const HELD_OUTS: u32 = QUARTER_OUTS / MATRIX_OUTS;
/// Numbers from a row to the next: lanes that read a column meet different memory banks.
const PITCH: u32 = 40u;

alias Left = subgroup_matrix_left<f16, MATRIX_DEPTH, MATRIX_ROWS>;
alias Right = subgroup_matrix_right<f16, MATRIX_OUTS, MATRIX_DEPTH>;
alias Sums = array<subgroup_matrix_result<f32, MATRIX_OUTS, MATRIX_ROWS>, HELD_ROWS * HELD_OUTS>;

/// [row][k] and [output][k].
var<workgroup> x_tile: array<f16, ROW_TILE * PITCH>;
var<workgroup> weight_tile: array<f16, OUT_TILE * PITCH>;

/// Subgroups may be smaller than the largest, for which THREADS are enough: the last ones have nothing to multiply.
fn quarter_of(thread: u32) -> u32 {
  return subgroupBroadcastFirst(thread) / subgroupAdd(1u);
}

fn put_x(row: u32, k4: u32, values: vec4<f32>) {
  let at = row * PITCH + 4u * k4;
  x_tile[at] = f16(values.x);
  x_tile[at + 1u] = f16(values.y);
  x_tile[at + 2u] = f16(values.z);
  x_tile[at + 3u] = f16(values.w);
}

fn put_weight(n: u32, k4: u32, values: vec4<f32>) {
  let at = n * PITCH + 4u * k4;
  weight_tile[at] = f16(values.x);
  weight_tile[at + 1u] = f16(values.y);
  weight_tile[at + 2u] = f16(values.z);
  weight_tile[at + 3u] = f16(values.w);
}

fn multiply(sums: ptr<function, Sums>, quarter: u32, thread: u32) {
  if (quarter >= 4u) {
    return;
  }
  let first_row = quarter / 2u * QUARTER_ROWS;
  let first_n = quarter % 2u * QUARTER_OUTS;
  for (var step = 0u; step < 4u * STAGE4 / MATRIX_DEPTH; step++) {
    let k = step * MATRIX_DEPTH;
    for (var i = 0u; i < HELD_ROWS; i++) {
      let rows = subgroupMatrixLoad<Left, row_major>(&x_tile, (first_row + i * MATRIX_ROWS) * PITCH + k, PITCH);
      for (var j = 0u; j < HELD_OUTS; j++) {
        let at_weight = (first_n + j * MATRIX_OUTS) * PITCH + k;
        let weights = subgroupMatrixLoad<Right, col_major>(&weight_tile, at_weight, PITCH);
        let at = i * HELD_OUTS + j;
        (*sums)[at] = subgroupMatrixMultiplyAccumulate(rows, weights, (*sums)[at]);
      }
    }
  }
}

fn hand_over(sums: ptr<function, Sums>, piece: u32, quarter: u32, thread: u32) {
  if (quarter < 4u) {
    subgroupMatrixStore<row_major>(&piece_sums, quarter * PIECE, (*sums)[piece], PIECE_OUTS);
  }
}
