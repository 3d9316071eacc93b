/// log(1 + e) of e in [0, 1] by 2 atanh(e / (2 + e)): log itself is only exact to some 2^-21 near 1.
fn log_1p(e: f32) -> f32 {
  let s = e / (2.0 + e);
  let q = s * s;
  var sum = 1.0 / 19.0;
  sum = fma(sum, q, 1.0 / 17.0);
  sum = fma(sum, q, 1.0 / 15.0);
  sum = fma(sum, q, 1.0 / 13.0);
  sum = fma(sum, q, 1.0 / 11.0);
  sum = fma(sum, q, 1.0 / 9.0);
  sum = fma(sum, q, 1.0 / 7.0);
  sum = fma(sum, q, 1.0 / 5.0);
  sum = fma(sum, q, 1.0 / 3.0);
  return 2.0 * s * fma(sum, q, 1.0);
}

fn softplus(x: f32) -> f32 {
  return max(x, 0.0) + log_1p(exp(-abs(x)));
}
