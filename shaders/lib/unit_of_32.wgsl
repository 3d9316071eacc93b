// Units of 32 weights of 4 bits, or halves of those of 64 of 2 bits: what weights_q4.wgsl and others share. The kernel declares
// fn load_x(row: u32, k4: u32) -> vec4<f32>, the activations k = 4 * k4 .. 4 * k4 + 3 of a row; UNIT and UNIT4 are those of a unit.

alias Unit = array<vec4<f32>, 8u>;

/// The activations that a unit is multiplied by; `k4` is the unit's first vec4.
fn load_x_unit(row: u32, k4: u32) -> Unit {
  return Unit(
    load_x(row, k4),
    load_x(row, k4 + 1u),
    load_x(row, k4 + 2u),
    load_x(row, k4 + 3u),
    load_x(row, k4 + 4u),
    load_x(row, k4 + 5u),
    load_x(row, k4 + 6u),
    load_x(row, k4 + 7u),
  );
}

/// acc + w * v, each element by fma in ascending k.
fn unit_fma(acc: vec4<f32>, w: Unit, v: Unit) -> vec4<f32> {
  var sum = fma(w[0], v[0], acc);
  sum = fma(w[1], v[1], sum);
  sum = fma(w[2], v[2], sum);
  sum = fma(w[3], v[3], sum);
  sum = fma(w[4], v[4], sum);
  sum = fma(w[5], v[5], sum);
  sum = fma(w[6], v[6], sum);
  return fma(w[7], v[7], sum);
}
