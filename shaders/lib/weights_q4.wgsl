// Packed Q4_0 weights (pack.ts): value = (q - 8) * d, exact in f32. The kernel declares the bindings
// `weight: array<vec4<u32>>` and `scale: array<u32>` (f16, two a word), and fn load_x(row: u32, k4: u32) -> vec4<f32>, the
// activations k = 4 * k4 .. 4 * k4 + 3 of a row.

/// (q - 8) * d of the low nibbles of a word's bytes; fma(q, d, -8 d) is exact.
fn nibbles(word: u32, d: f32) -> vec4<f32> {
  let q = vec4<f32>(vec4<i32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u)));
  return fma(q, vec4<f32>(d), vec4<f32>(-8.0 * d));
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_piece(index: u32, piece: u32) -> Unit {
  let words = weight[index];
  let d = unit_scale(index);
  return Unit(
    nibbles(words.x, d),
    nibbles(words.x >> 4u, d),
    nibbles(words.y, d),
    nibbles(words.y >> 4u, d),
    nibbles(words.z, d),
    nibbles(words.z >> 4u, d),
    nibbles(words.w, d),
    nibbles(words.w >> 4u, d),
  );
}

/// The `part`-th vec4 of a unit, whose scale is `d`.
fn load_part(index: u32, part: u32, d: Scale) -> vec4<f32> {
  return nibbles(weight[index][part >> 1u] >> ((part & 1u) * 4u), d);
}

// For hardware adapters (scaled_sum.wgsl), joined after quants_q4.wgsl or quants_q4_f16.wgsl.

/// The unit's values without their scale.
fn unit_values(words: vec4<u32>, d: Scale) -> Unit {
  let high = words >> vec4<u32>(4u);
  return Unit(
    quants(words.x),
    quants(high.x),
    quants(words.y),
    quants(high.y),
    quants(words.z),
    quants(high.z),
    quants(words.w),
    quants(high.w),
  );
}
