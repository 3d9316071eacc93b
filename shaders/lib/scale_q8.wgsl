alias Scale = f32;

/// Two units share the scale of their block of 32.
fn unit_scale(index: u32) -> Scale {
  let at = ((index >> 6u) << 5u) | (index & 31u);
  return half_value(scale[at >> 1u] >> ((at & 1u) * 16u));
}
