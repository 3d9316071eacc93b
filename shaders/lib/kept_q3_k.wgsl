// Q3_K for weights_kept.wgsl: value = d scale (code - 4), a scale of 16 elements, d of 256.

/// Four signed bytes, and d: [unit][lane] words, then [lane] halves of words.
fn factors_of(first: u32, unit: u32) -> vec2<u32> {
  return vec2<u32>(scale[first + unit], scale[first + 128u + ((unit & 31u) >> 1u)] >> ((unit & 1u) * 16u));
}

fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let d = half_value(s.factors.y) * f32(bitcast<i32>(s.factors.x << (24u - 8u * sixteen)) >> 24u);
  return vec2<f32>(d, -4.0 * d);
}
