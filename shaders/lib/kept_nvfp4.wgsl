// NVFP4 for weights_kept.wgsl: value = scale factor number, a scale of 16 elements, of which a unit has two: [unit][lane] halves of
// words; then [lane / 8] the tensor's factor, f32. It isn't exact, so scale factor is rounded, too.

fn factors_of(first: u32, unit: u32) -> vec2<u32> {
  return vec2<u32>(scale[first + (unit >> 1u)] >> ((unit & 1u) * 16u), scale[first + 32u + ((unit & 31u) >> 3u)]);
}

/// Half of UE4M3's number, as numbers are doubled: 4 bits of exponent, 3 of fraction; 0x7f is zero.
fn line(s: Scale, sixteen: u32) -> vec2<f32> {
  let byte = (s.factors.x >> (8u * sixteen)) & 255u;
  let exponent = (byte >> 3u) & 15u;
  let fraction = (byte & 7u) + select(8u, 0u, exponent == 0u);
  let value = f32(fraction) * bitcast<f32>((max(exponent, 1u) + 116u) << 23u);
  return vec2<f32>(select(value, 0.0, byte == 127u) * bitcast<f32>(s.factors.y), 0.0);
}
