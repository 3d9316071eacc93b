// Packed f16 weights (pack.ts), widened to f32; needs no shader-f16. The kernel declares the bindings
// `weight: array<vec4<u32>>` and `scale: array<u32>`, and fn load_x(row: u32, k4: u32) -> vec4<f32>, the activations
// k = 4 * k4 .. 4 * k4 + 3 of a row.

/// Elements of a row in one 16-byte unit, and the same in vec4s.
const UNIT: u32 = 8u;
const UNIT4: u32 = 2u;

alias Unit = array<vec4<f32>, UNIT4>;

fn widen(low: u32, high: u32) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(low), unpack2x16float(high));
}

/// The activations that a unit is multiplied by; `k4` is the unit's first vec4.
fn load_x_unit(row: u32, k4: u32) -> Unit {
  return Unit(load_x(row, k4), load_x(row, k4 + 1u));
}

/// acc + w * v, each element by fma in ascending k.
fn unit_fma(acc: vec4<f32>, w: Unit, v: Unit) -> vec4<f32> {
  return fma(w[1], v[1], fma(w[0], v[0], acc));
}

/// Unquantised weights have no scale.
alias Scale = f32;

fn unit_scale(index: u32) -> Scale {
  return 1.0;
}

/// The `part`-th vec4 of a unit; `index` = (tile * units + unit) * 32 + lane.
fn load_part(index: u32, part: u32, d: Scale) -> vec4<f32> {
  return widen(weight[index][2u * part], weight[index][2u * part + 1u]);
}

// For hardware adapters (plain_sum.wgsl).

fn unit_values(words: vec4<u32>, d: Scale) -> Unit {
  return Unit(widen(words.x, words.y), widen(words.z, words.w));
}
