// Packed Q8_0 weights (pack.ts): value = q * d, exact in f32. The kernel declares the bindings `weight: array<vec4<u32>>` and
// `scale: array<u32>` (f16, two a word), and fn load_x(row: u32, k4: u32) -> vec4<f32>, the activations
// k = 4 * k4 .. 4 * k4 + 3 of a row.

/// Elements of a row in one 16-byte unit, and the same in vec4s.
const UNIT: u32 = 16u;
const UNIT4: u32 = 4u;

alias Unit = array<vec4<f32>, UNIT4>;

fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>(vec4<i32>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_piece(index: u32, piece: u32) -> Unit {
  let words = weight[index];
  let d = unit_scale(index);
  return Unit(
    signed_bytes(words.x) * d,
    signed_bytes(words.y) * d,
    signed_bytes(words.z) * d,
    signed_bytes(words.w) * d,
  );
}

/// The activations that a unit is multiplied by; `k4` is the unit's first vec4.
fn load_x_unit(row: u32, k4: u32) -> Unit {
  return Unit(
    load_x(row, k4),
    load_x(row, k4 + 1u),
    load_x(row, k4 + 2u),
    load_x(row, k4 + 3u),
  );
}

/// acc + w * v, each element by fma in ascending k.
fn unit_fma(acc: vec4<f32>, w: Unit, v: Unit) -> vec4<f32> {
  var sum = fma(w[0], v[0], acc);
  sum = fma(w[1], v[1], sum);
  sum = fma(w[2], v[2], sum);
  return fma(w[3], v[3], sum);
}

/// The `part`-th vec4 of a unit, whose scale is `d`.
fn load_part(index: u32, part: u32, d: Scale) -> vec4<f32> {
  return signed_bytes(weight[index][part]) * d;
}

// For hardware adapters (scaled_sum.wgsl).

/// The unit's values without their scale.
fn unit_values(words: vec4<u32>, d: Scale) -> Unit {
  return Unit(signed_bytes(words.x), signed_bytes(words.y), signed_bytes(words.z), signed_bytes(words.w));
}
