enable f16;

/// q - 8 of the nibbles at the bits 0 and 16: beside the bits of 1024, the last of which is 1, and exact.
fn half_quants(word: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - 1032.0h);
}

/// q - 8 of the low nibbles of a word's bytes, two by one instruction of f16: the same bits as quants_q4.wgsl's.
fn quants(word: u32) -> vec4<f32> {
  let even = half_quants(word);
  let odd = half_quants(word >> 8u);
  return vec4<f32>(even.x, odd.x, even.y, odd.y);
}
