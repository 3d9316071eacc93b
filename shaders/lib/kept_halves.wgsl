// Blocks of 32 for weights_kept.wgsl: value = d (code - MIDDLE), or d code + m where blocks have two HALVES.

/// [lane] halves of words or words.
fn factors_of(first: u32, lane: u32) -> vec2<u32> {
  if (HALVES == 2u) {
    return vec2<u32>(scale[first + lane], 0u);
  }
  return vec2<u32>(scale[first + (lane >> 1u)] >> ((lane & 1u) * 16u), 0u);
}

fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let d = half_value(s.factors.x);
  if (HALVES == 2u) {
    return vec2<f32>(d, half_value(s.factors.x >> 16u));
  }
  return vec2<f32>(d, -MIDDLE * d);
}
