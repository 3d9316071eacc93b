// Products of signed bytes by the language feature packed_4x8_integer_dot_product. Its twin is dot_plain.wgsl.

fn dot_bytes(a: vec4<u32>, b: vec4<u32>) -> i32 {
  return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
