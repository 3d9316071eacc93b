/// 8, 25 and 43.
fn numbers(sizes: vec4<u32>, signs: u32) -> vec4<f32> {
  return signed(vec4<f32>(8u + sizes * 17u + (sizes >> vec4<u32>(1u))), signs);
}
