// Q4_K and Q5_K for weights_kept.wgsl: value = d scale code - dmin minimum, scale and minimum of 32 elements, d and dmin of 256.

/// (scale, minimum) in the bytes of the low half, signed; and d, dmin: 6 bits of exponent and 10 of fraction, never zero.
fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let factors = vec2<f32>(vec2<i32>(vec2<u32>(s.factors.x) << vec2<u32>(24u, 16u)) >> vec2<u32>(24u));
  let halves = vec2<u32>(s.factors.y & 0xffffu, s.factors.y >> 16u);
  let d = bitcast<vec2<f32>>((halves << vec2<u32>(13u)) + vec2<u32>(0x33800000u));
  return d * factors;
}
