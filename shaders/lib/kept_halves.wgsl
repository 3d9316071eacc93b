// Blocks with one f16 or two for weights_kept.wgsl: value = d (CODE_STEP code - CODE_MIDDLE), or d code + m where blocks have two FACTORS.

/// [lane] halves of words or words.
fn factors_of(first: u32, unit: u32) -> vec2<u32> {
  let lane = unit & 31u;
  if (FACTORS == 2u) {
    return vec2<u32>(0u, scale[first + lane]);
  }
  return vec2<u32>(0u, scale[first + (lane >> 1u)] >> ((lane & 1u) * 16u));
}

fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let d = half_value(s.factors.y);
  if (FACTORS == 2u) {
    return vec2<f32>(d, half_value(s.factors.y >> 16u));
  }
  return vec2<f32>(CODE_STEP * d, -CODE_MIDDLE * d);
}
