/// The number that an f16 is: subnormal ones, which a GPU may take for zero, are integers times 2^-24.
fn half_value(half: u32) -> f32 {
  let magnitude = half & 0x7fffu;
  let normal = bitcast<f32>((magnitude << 13u) + 0x38000000u);
  let value = select(normal, f32(magnitude) * 0x1p-24f, magnitude < 0x400u);
  return select(value, -value, (half & 0x8000u) != 0u);
}
