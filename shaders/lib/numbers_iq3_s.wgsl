fn numbers(sizes: vec4<u32>, signs: u32) -> vec4<f32> {
  return signed(vec4<f32>(2u * sizes + 1u), signs);
}
