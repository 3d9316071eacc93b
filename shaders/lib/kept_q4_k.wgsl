// Q4_K for weights_kept.wgsl: value = d scale code - dmin minimum, scale and minimum of 32 elements, d and dmin of 256.

/// (scale, minimum) in the bytes of the low half, signed; and d, dmin: 6 bits of exponent and 10 of fraction, never zero.
alias Scale = vec2<u32>;

/// Of 256 elements and 32 lanes: [unit][lane] halves of words, then [lane] words.
fn unit_scale(index: u32) -> Scale {
  let first = (index >> 8u) * 160u;
  let pair = scale[first + ((index & 255u) >> 1u)];
  return Scale(pair >> ((index & 1u) * 16u), scale[first + 128u + (index & 31u)]);
}

fn line(s: Scale, half: u32) -> vec2<f32> {
  let factors = vec2<f32>(vec2<i32>(vec2<u32>(s.x) << vec2<u32>(24u, 16u)) >> vec2<u32>(24u));
  let d = bitcast<vec2<f32>>((vec2<u32>(s.y & 0xffffu, s.y >> 16u) << vec2<u32>(13u)) + vec2<u32>(0x33800000u));
  return d * factors;
}

fn high_bits(s: Scale, part: u32) -> u32 {
  return 0u;
}
