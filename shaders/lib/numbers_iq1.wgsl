/// Eight times -1, 0 or 1 and their shift of an eighth.
fn numbers(sizes: vec4<u32>, signs: u32) -> vec4<f32> {
  return vec4<f32>(8u * sizes) - select(7.0, 9.0, signs != 0u);
}
