// Which entries a row attends to, and its scores' cap. Joined after tanh.wgsl. The kernel declares the params window and softcap.
//
//   window    a row whose own entry is `last` sees the entries last - window + 1 to last; of a run to last + window - 1 (runs.wgsl)
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

fn cap_scores(scores: vec4<f32>) -> vec4<f32> {
  if (CAPPED) {
    return params.softcap * tanh4(scores / params.softcap);
  }
  return scores;
}
