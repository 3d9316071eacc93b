alias Scale = f32;

/// Two units share the scale of their block of 32.
fn unit_scale(index: u32) -> Scale {
  let at = ((index >> 6u) << 5u) | (index & 31u);
  let pair = unpack2x16float(scale[at >> 1u]);
  return select(pair.x, pair.y, (at & 1u) == 1u);
}
