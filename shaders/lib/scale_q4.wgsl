alias Scale = f32;

/// A unit is a whole block, so scales are indexed like units.
fn unit_scale(index: u32) -> Scale {
  return half_value(scale[index >> 1u] >> ((index & 1u) * 16u));
}
