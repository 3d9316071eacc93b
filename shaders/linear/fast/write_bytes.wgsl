// How kernels write rows in bytes (row_vec4s.wgsl) to `out: array<u32>`: by blocks of 32 elements, an invocation each.

/// Block `i` of a row; `stride4`: vec4s of elements from row to row.
fn write_bytes(row: u32, i: u32, stride4: u32, values: array<vec4<f32>, 8>) {
  let rounded = byte_block(values);
  let at = 4u * row * row_vec4s(stride4);
  for (var word = 0u; word < 4u; word++) {
    out[at + 8u * i + word] = rounded.words[0][word];
    out[at + 8u * i + 4u + word] = rounded.words[1][word];
  }
  out[at + stride4 + i] = bitcast<u32>(rounded.scale);
}
