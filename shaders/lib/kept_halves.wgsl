// Blocks of 32 for weights_kept.wgsl: value = d (code - MIDDLE), or d code + m where blocks have two HALVES.

/// [lane] halves of words or words.
fn factors_of(first: u32, lane: u32) -> vec2<u32> {
  if (HALVES == 2u) {
    return vec2<u32>(scale[first + lane], 0u);
  }
  return vec2<u32>(scale[first + (lane >> 1u)] >> ((lane & 1u) * 16u), 0u);
}

/// The number that an f16 is: subnormal ones, which a GPU may take for zero, are integers times 2^-24.
fn half_value(half: u32) -> f32 {
  let magnitude = half & 0x7fffu;
  let normal = bitcast<f32>((magnitude << 13u) + 0x38000000u);
  let value = select(normal, f32(magnitude) * 0x1p-24f, magnitude < 0x400u);
  return select(value, -value, (half & 0x8000u) != 0u);
}

fn line(s: Scale, half: u32) -> vec2<f32> {
  let d = half_value(s.factors.x);
  if (HALVES == 2u) {
    return vec2<f32>(d, half_value(s.factors.x >> 16u));
  }
  return vec2<f32>(d, -MIDDLE * d);
}
