// Sums of matrix.wgsl in f16 over the columns that are staged together, added up in f32 by held.wgsl, in ascending k.

alias Total = f16;

/// [row][output] of the tile.
var<workgroup> products: array<f16, ROW_TILE * OUT_TILE>;

fn multiply(sums: ptr<function, Sums>, quarter: u32, thread: u32) {
  let own = subgroup_quarter(thread);
  if (own < 4u) {
    var staged = Products();
    multiply_quarter(&staged, own);
    let first = own / 2u * QUARTER_ROWS * OUT_TILE + own % 2u * QUARTER_OUTS;
    for (var i = 0u; i < QUARTER_ROWS / MATRIX_ROWS * QUARTER_ACROSS; i++) {
      let at = first + i / QUARTER_ACROSS * MATRIX_ROWS * OUT_TILE + i % QUARTER_ACROSS * MATRIX_OUTS;
      subgroupMatrixStore<row_major>(&products, at, staged[i], OUT_TILE);
    }
  }
  workgroupBarrier();
  let first = first_held(quarter, thread);
  for (var i = 0u; i < HELD_ROWS; i++) {
    for (var j = 0u; j < HELD_OUTS; j++) {
      (*sums)[i * HELD_OUTS + j] += f32(products[(first.x + ROW_LANES * i) * OUT_TILE + first.y + OUT_LANES * j]);
    }
  }
}
