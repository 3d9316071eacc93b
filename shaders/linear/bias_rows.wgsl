// Biases of rows that have their own, or that begin where none can be bound.

// Elements between them, and before the first.
const BIAS_STRIDE: u32 = 32u; // variant
const BIAS_OFFSET: u32 = 0u; // variant

fn bias_at(row: u32, n: u32) -> u32 {
  return row * BIAS_STRIDE + BIAS_OFFSET + n;
}
