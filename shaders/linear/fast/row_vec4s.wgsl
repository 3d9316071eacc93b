// How rows lie in bytes: of each the bytes of its blocks of 32 elements, then their scales.

/// From row to row, in 16 bytes, of rows that are `stride4` vec4s of elements apart: a multiple of 8.
fn row_vec4s(stride4: u32) -> u32 {
  return stride4 / 4u + (stride4 + 31u) / 32u;
}
