// Products of signed bytes in plain WGSL: the twin of dot_packed.wgsl, the same bits.

fn byte_values(word: u32) -> vec4<i32> {
  return vec4<i32>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
}

fn dot_bytes(a: vec4<u32>, b: vec4<u32>) -> i32 {
  let products = byte_values(a.x) * byte_values(b.x) + byte_values(a.y) * byte_values(b.y)
    + byte_values(a.z) * byte_values(b.z) + byte_values(a.w) * byte_values(b.w);
  return products.x + products.y + products.z + products.w;
}
