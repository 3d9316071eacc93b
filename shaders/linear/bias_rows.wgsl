// Biases of rows that have their own.

// Elements between them.
const BIAS_STRIDE: u32 = 32u; // variant

fn bias_at(row: u32, n: u32) -> u32 {
  return row * BIAS_STRIDE + n;
}
