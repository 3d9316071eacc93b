// Q6_K for weights_kept.wgsl: value = d scale (code - 32), a scale of 16 elements, d of 256.

/// Two signed bytes, and the f32 d.
fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let d = bitcast<f32>(s.factors.y) * f32(bitcast<i32>(s.factors.x << (24u - 8u * sixteen)) >> 24u);
  return vec2<f32>(d, -32.0 * d);
}
