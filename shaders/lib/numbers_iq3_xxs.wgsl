/// 4, 12, 20, 28, 36, 44, 52 and 62.
fn numbers(sizes: vec4<u32>, signs: u32) -> vec4<f32> {
  return signed(vec4<f32>(4u + sizes * 8u + ((sizes + 1u) >> vec4<u32>(3u)) * 2u), signs);
}
