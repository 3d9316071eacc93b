alias Scale = f32;

/// A unit is a whole block, so scales are indexed like units.
fn unit_scale(index: u32) -> Scale {
  let pair = unpack2x16float(scale[index >> 1u]);
  return select(pair.x, pair.y, (index & 1u) == 1u);
}
