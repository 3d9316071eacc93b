// Which entries a row attends to, and its scores' cap. The kernel declares the params window and softcap.
//
//   window    a row whose own entry is `last` sees the entries last - window + 1 to last
//   softcap   scores s become softcap * tanh(s / softcap)
//
// Variants: WINDOWED, CAPPED. Without them the params aren't read: all entries up to the last, scores as they are.
const WINDOWED: bool = false; // variant
const CAPPED: bool = false; // variant

// The first entry that a row sees.
fn first_seen(last: u32) -> u32 {
  if (WINDOWED) {
    return last + 1u - min(params.window, last + 1u);
  }
  return 0u;
}

// tanh, whose precision WGSL leaves open: by its series near 0, where 1 - exp would lose digits. exp of numbers <= 0 only.
fn tanh4(x: vec4<f32>) -> vec4<f32> {
  let e = exp(-2.0 * abs(x));
  let y = x * x;
  let near = x * fma(y, fma(y, fma(y, fma(y, vec4<f32>(62.0 / 2835.0), vec4<f32>(-17.0 / 315.0)), vec4<f32>(2.0 / 15.0)), vec4<f32>(-1.0 / 3.0)), vec4<f32>(1.0));
  return select(sign(x) * ((1.0 - e) / (1.0 + e)), near, y < vec4<f32>(0.0625));
}

fn cap_scores(scores: vec4<f32>) -> vec4<f32> {
  if (CAPPED) {
    return params.softcap * tanh4(scores / params.softcap);
  }
  return scores;
}
