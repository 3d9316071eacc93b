/// The number that the low 16 bits are as an f16, on adapters that don't take subnormal ones for zero.
fn half_value(half: u32) -> f32 {
  return unpack2x16float(half).x;
}
