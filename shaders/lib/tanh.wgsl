// tanh, whose precision WGSL leaves open: by its series near 0, where 1 - exp would lose digits. exp of numbers <= 0 only.
fn tanh4(x: vec4<f32>) -> vec4<f32> {
  let e = exp(-2.0 * abs(x));
  let y = x * x;
  let near = x * fma(y, fma(y, fma(y, fma(y, vec4<f32>(62.0 / 2835.0), vec4<f32>(-17.0 / 315.0)), vec4<f32>(2.0 / 15.0)), vec4<f32>(-1.0 / 3.0)), vec4<f32>(1.0));
  return select(sign(x) * ((1.0 - e) / (1.0 + e)), near, y < vec4<f32>(0.0625));
}
