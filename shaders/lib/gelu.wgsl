// GELU by tanh: 0.5 g (1 + tanh(u)) = g / (1 + exp(-2 u)), u = sqrt(2 / pi) (g + 0.044715 g^3).
// ERF: 0.5 g (1 + erf(g / sqrt(2))).
const ERF: bool = false; // variant

fn gelu(g: f32) -> f32 {
  // Beyond, the result is g or 0 to f32's precision; exp(87) is finite.
  let x = clamp(g, -100.0, 100.0);
  if (ERF) {
    // Abramowitz and Stegun 7.1.26, of |erf| to 1.5e-7: tail is 0.5 |g| (1 - erf(|g| / sqrt(2))).
    let z = abs(x) * 0.7071067811865476;
    let t = 1.0 / fma(0.3275911, z, 1.0);
    let series = fma(fma(fma(fma(1.061405429, t, -1.453152027), t, 1.421413741), t, -0.284496736), t, 0.254829592);
    let tail = 0.5 * abs(x) * series * t * exp(max(-z * z, -87.0));
    return max(g, 0.0) - tail;
  }
  let u = 0.7978845608028654 * fma(0.044715 * x * x, x, x);
  return g / (1.0 + exp(min(-2.0 * u, 87.0)));
}
