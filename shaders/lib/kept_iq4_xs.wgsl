// IQ4_XS for weights_kept.wgsl: value = d scale number, a scale of 32 elements, d of 256.

/// A signed byte, and d: [unit][lane] bytes, then [lane] f32.
fn factors_of(first: u32, unit: u32) -> vec2<u32> {
  return vec2<u32>(scale[first + (unit >> 2u)] << (24u - (unit & 3u) * 8u), scale[first + 64u + (unit & 31u)]);
}

fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<f32>(s.factors.y) * f32(bitcast<i32>(s.factors.x) >> 24u), 0.0);
}
