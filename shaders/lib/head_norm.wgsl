// RMS norm of a q or k head by LANES threads: each sums squares of its own units, then each adds up all of these.
//
//   y = x * w / sqrt(mean(x^2) + eps)
//
// The kernel declares qkv: array<vec4<f32>>, the params half_units and eps, LANES, HALF_UNITS, and has a barrier after each
// thread's head_squares went to `squares`, the LANES of a head side by side.

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

// Of a thread's units of the head whose unit 0 is `base`: lane, lane + LANES, ... of either half.
fn head_squares(base: u32, lane: u32) -> f32 {
  var sum = vec4<f32>();
  var unit = lane;
  for (var left = steps(lane, params.half_units, LANES); left > 0u; left--) {
    let low = qkv[base + unit];
    let high = qkv[base + HALF_UNITS + unit];
    sum = fma(low, low, sum);
    sum = fma(high, high, sum);
    unit += LANES;
  }
  return sum4(sum);
}

// 1 / sqrt(mean(x^2) + eps).
fn head_inverse(total: f32) -> f32 {
  return 1.0 / sqrt(total / f32(HEAD_DIM) + params.eps);
}
