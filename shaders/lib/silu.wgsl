// exp only of numbers <= 0: it can't overflow, so a large negative g gives -0 and never a NaN.
fn silu(g: f32) -> f32 {
  let e = exp(-abs(g));
  return g * select(e, 1.0, g >= 0.0) / (1.0 + e);
}

fn sigmoid(g: f32) -> f32 {
  let e = exp(-abs(g));
  return select(e, 1.0, g >= 0.0) / (1.0 + e);
}
