// Q6_K for weights_kept.wgsl: value = d scale (code - 32), a scale of 16 elements, d of 256.

struct Scale {
  /// 2 bits of a code each: vec4 p of the unit in bits 2 (p % 4) of the bytes of word p / 4.
  high: vec2<u32>,
  /// Two signed bytes.
  scales: u32,
  d: f32,
}

/// Of 256 elements and 32 lanes: [unit][lane] of two words, then [unit][lane] halves of words, then [lane] f32.
fn unit_scale(index: u32) -> Scale {
  let first = (index >> 8u) * 672u;
  let unit = index & 255u;
  let high = first + 2u * unit;
  let pair = scale[first + 512u + (unit >> 1u)];
  let d = bitcast<f32>(scale[first + 640u + (index & 31u)]);
  return Scale(vec2<u32>(scale[high], scale[high + 1u]), pair >> ((index & 1u) * 16u), d);
}

fn line(s: Scale, half: u32) -> vec2<f32> {
  let d = s.d * f32(bitcast<i32>(s.scales << (24u - 8u * half)) >> 24u);
  return vec2<f32>(d, -32.0 * d);
}

fn high_bits(s: Scale, part: u32) -> u32 {
  let word = select(s.high.x, s.high.y, part > 3u);
  let place = 2u * (part & 3u);
  return select(word << (4u - place), word >> (place - 4u), place > 4u) & 0x30303030u;
}
