// Products by the matrix units of 4 subgroups, a quarter of the tile (tile.wgsl) each, of what half.wgsl stages; k ascends by
// MATRIX_DEPTH, whose sums the hardware orders. fragments.ts says what an Element is, f16 or f32; matrix_sums.wgsl or
// matrix_half_sums.wgsl, where it is summed. Its twin in plain WGSL: half_plain.wgsl with held.wgsl; tests spell matrix units out, too.
enable subgroups;

/// The shape of a product, from the adapter: MATRIX_ROWS x MATRIX_DEPTH times MATRIX_DEPTH x MATRIX_OUTS.
const MATRIX_ROWS: u32 = 16u; // variant
const MATRIX_OUTS: u32 = 16u; // variant
const MATRIX_DEPTH: u32 = 16u; // variant

const QUARTER_ACROSS: u32 = QUARTER_OUTS / MATRIX_OUTS;
/// Numbers from a row to the next: lanes that read a column meet different memory banks.
const PITCH: u32 = 40u;

alias Left = subgroup_matrix_left<Element, MATRIX_DEPTH, MATRIX_ROWS>;
alias Right = subgroup_matrix_right<Element, MATRIX_OUTS, MATRIX_DEPTH>;
alias Products = array<subgroup_matrix_result<Total, MATRIX_OUTS, MATRIX_ROWS>, QUARTER_ROWS / MATRIX_ROWS * QUARTER_ACROSS>;

/// [row][k] and [output][k].
var<workgroup> x_tile: array<Element, ROW_TILE * PITCH>;
var<workgroup> weight_tile: array<Element, OUT_TILE * PITCH>;

/// Subgroups may be smaller than the largest, for which THREADS are enough: the last ones have nothing to multiply.
fn subgroup_quarter(thread: u32) -> u32 {
  return subgroupBroadcastFirst(thread) / subgroupAdd(1u);
}

fn put_x(row: u32, k4: u32, values: vec4<f32>) {
  let at = row * PITCH + 4u * k4;
  x_tile[at] = Element(values.x);
  x_tile[at + 1u] = Element(values.y);
  x_tile[at + 2u] = Element(values.z);
  x_tile[at + 3u] = Element(values.w);
}

fn put_weight(n: u32, k4: u32, values: vec4<f32>) {
  let at = n * PITCH + 4u * k4;
  weight_tile[at] = Element(values.x);
  weight_tile[at + 1u] = Element(values.y);
  weight_tile[at + 2u] = Element(values.z);
  weight_tile[at + 3u] = Element(values.w);
}

/// Adds the products of what is staged.
fn multiply_quarter(products: ptr<function, Products>, quarter: u32) {
  let first_row = quarter / 2u * QUARTER_ROWS;
  let first_n = quarter % 2u * QUARTER_OUTS;
  for (var step = 0u; step < 4u * STAGE4 / MATRIX_DEPTH; step++) {
    let k = step * MATRIX_DEPTH;
    for (var i = 0u; i < QUARTER_ROWS / MATRIX_ROWS; i++) {
      let rows = subgroupMatrixLoad<Left, row_major>(&x_tile, (first_row + i * MATRIX_ROWS) * PITCH + k, PITCH);
      for (var j = 0u; j < QUARTER_ACROSS; j++) {
        let at_weight = (first_n + j * MATRIX_OUTS) * PITCH + k;
        let weights = subgroupMatrixLoad<Right, col_major>(&weight_tile, at_weight, PITCH);
        let at = i * QUARTER_ACROSS + j;
        (*products)[at] = subgroupMatrixMultiplyAccumulate(rows, weights, (*products)[at]);
      }
    }
  }
}
