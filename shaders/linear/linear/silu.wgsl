// exp(87) is finite; beyond it silu is zero to f32's precision either way.
fn silu(g: f32) -> f32 {
  return g / (1.0 + exp(min(-g, 87.0)));
}
