/// q - 8 of the low nibbles of a word's bytes: compilers have an instruction a byte for it.
fn quants(word: u32) -> vec4<f32> {
  let q = word & 0x0f0f0f0fu;
  return vec4<f32>(vec4<u32>(q, q >> 8u, q >> 16u, q >> 24u) & vec4<u32>(255u)) - 8.0;
}
