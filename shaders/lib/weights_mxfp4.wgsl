// Packed MXFP4 weights (pack.ts): value = E2M1 * 2^(scale - 127), exact in f32. The kernel declares the bindings
// `weight: array<vec4<u32>>` and `scale: array<u32>` (a byte a block, four a word), and fn load_x(row: u32, k4: u32) -> vec4<f32>, the
// activations k = 4 * k4 .. 4 * k4 + 3 of a row.

alias Scale = f32;

/// Of doubled values, 2^(scale - 128): those of the scales 0 and 1 are subnormal. A unit is a whole block, so scales are indexed like
/// units.
fn unit_scale(index: u32) -> Scale {
  let e = (scale[index >> 2u] >> ((index & 3u) * 8u)) & 255u;
  return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
}

/// 12 + twice the value of each byte's E2M1, a sign above the numbers 0, 1, 2, 3, 4, 6, 8, 12; upper nibbles are clear. No byte borrows
/// of another.
fn biased(codes: vec4<u32>) -> vec4<u32> {
  let both = codes & (codes >> vec4<u32>(1u)) & vec4<u32>(0x01010101u);
  // Beyond 4: 1, 2 and 5 more than their place.
  let large = ((codes >> vec4<u32>(2u)) & vec4<u32>(0x01010101u)) * 255u;
  let more = ((codes & vec4<u32>(0x03030303u)) + (both << vec4<u32>(1u))) & large;
  let magnitude = (codes & vec4<u32>(0x07070707u)) + more;
  let negative = ((codes >> vec4<u32>(3u)) & vec4<u32>(0x01010101u)) * 255u;
  return vec4<u32>(0x0c0c0c0cu) + magnitude - ((magnitude & negative) << vec4<u32>(1u));
}

/// Twice the values of the bytes of a word of `biased`.
fn doubled(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(255u)) - 12.0;
}

/// Twice the unit's values, without their scale.
fn unit_values(words: vec4<u32>, d: Scale) -> Unit {
  let low = biased(words & vec4<u32>(0x0f0f0f0fu));
  let high = biased((words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
  return Unit(
    doubled(low.x),
    doubled(high.x),
    doubled(low.y),
    doubled(high.y),
    doubled(low.z),
    doubled(high.z),
    doubled(low.w),
    doubled(high.w),
  );
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_piece(index: u32, piece: u32) -> Unit {
  let d = unit_scale(index);
  let values = unit_values(weight[index], d);
  return Unit(
    values[0] * d,
    values[1] * d,
    values[2] * d,
    values[3] * d,
    values[4] * d,
    values[5] * d,
    values[6] * d,
    values[7] * d,
  );
}

/// The `part`-th vec4 of a unit, whose scale is `d`.
fn load_part(index: u32, part: u32, d: Scale) -> vec4<f32> {
  let codes = (weight[index][part >> 1u] >> ((part & 1u) * 4u)) & 0x0f0f0f0fu;
  return doubled(biased(vec4<u32>(codes)).x) * d;
}
