// Softmax state of a set of keys with scores s and values v, for 4 of the value's dims:
//   m = max s,  l = sum exp(s - m),  o = sum exp(s - m) v      natural log; s has the scale applied
// Empty set: o = 0, m = EMPTY_M, l = 0. A set that isn't empty has l > 0.
const EMPTY_M: f32 = -3.0e38;

struct SoftmaxState {
  o: vec4<f32>,
  m: f32,
  l: f32,
}

fn softmax_empty() -> SoftmaxState {
  return SoftmaxState(vec4<f32>(), EMPTY_M, 0.0);
}

// exp(m - new_m) for m <= new_m: exactly 1 when they are equal, which exp(0) need not be. The bound keeps exp's
// argument in the range where it is finite; exp(-200) is 0 in f32.
fn softmax_weight(m: f32, new_m: f32) -> f32 {
  return select(exp(max(m - new_m, -200.0)), 1.0, m == new_m);
}

// Merging an empty state returns the other side bit for bit.
fn softmax_merge(a: SoftmaxState, b: SoftmaxState) -> SoftmaxState {
  let m = max(a.m, b.m);
  let weight_a = softmax_weight(a.m, m);
  let weight_b = softmax_weight(b.m, m);
  let l = fma(weight_a, a.l, weight_b * b.l);
  let o = fma(vec4<f32>(weight_a), a.o, weight_b * b.o);
  let only_a = b.l == 0.0;
  let only_b = a.l == 0.0;
  return SoftmaxState(
    select(select(o, b.o, only_b), a.o, only_a),
    select(select(m, b.m, only_b), a.m, only_a),
    select(select(l, b.l, only_b), a.l, only_a),
  );
}

// o / l, and 0 for the empty state.
fn softmax_finish(state: SoftmaxState) -> vec4<f32> {
  let some = state.l > 0.0;
  return select(vec4<f32>(), state.o / select(1.0, state.l, some), some);
}
