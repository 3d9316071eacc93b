// GELU by tanh: 0.5 g (1 + tanh(u)) = g / (1 + exp(-2 u)), u = sqrt(2 / pi) (g + 0.044715 g^3).

fn gelu_tanh(g: f32) -> f32 {
  // Beyond, the result is g or 0 to f32's precision; exp(87) is finite.
  let x = clamp(g, -100.0, 100.0);
  let u = 0.7978845608028654 * fma(0.044715 * x * x, x, x);
  return g / (1.0 + exp(min(-2.0 * u, 87.0)));
}
