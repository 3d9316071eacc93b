// Q2_K for weights_kept.wgsl: value = d scale code - dmin minimum, scale and minimum of 16 elements, d and dmin of 256.

/// Four bytes (scale, minimum), and (d, dmin): [unit][lane] words, then [lane] words.
fn factors_of(first: u32, unit: u32) -> vec2<u32> {
  return vec2<u32>(scale[first + unit], scale[first + 128u + (unit & 31u)]);
}

fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let pair = s.factors.x >> (8u * sixteen);
  let factors = vec2<f32>(vec2<u32>(pair, pair >> 4u) & vec2<u32>(15u));
  return vec2<f32>(half_value(s.factors.y), -half_value(s.factors.y >> 16u)) * factors;
}
