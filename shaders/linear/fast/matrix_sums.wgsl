// Sums of matrix.wgsl in f32, in the matrix units' registers.

const PIECE_ROWS: u32 = MATRIX_ROWS;
const PIECE_OUTS: u32 = MATRIX_OUTS;

alias Total = f32;
alias Sums = Products;

fn quarter_of(thread: u32) -> u32 {
  return subgroup_quarter(thread);
}

fn multiply(sums: ptr<function, Sums>, quarter: u32, thread: u32) {
  if (quarter < 4u) {
    multiply_quarter(sums, quarter);
  }
}

fn hand_over(sums: ptr<function, Sums>, piece: u32, quarter: u32, thread: u32) {
  if (quarter < 4u) {
    subgroupMatrixStore<row_major>(&piece_sums, quarter * PIECE, (*sums)[piece], PIECE_OUTS);
  }
}
