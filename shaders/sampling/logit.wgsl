// What every sampling kernel does to a logit: made finite, repetition penalty applied, given an integer key that orders it.

/// One element of `sampling`; params.ts writes it.
struct SamplingParams {
  temperature: f32,
  top_k: u32,
  top_p: f32,
  repetition_penalty: f32,
  seed_low: u32,
  seed_high: u32,
  counter: u32,
  is_active: u32,
}

/// The id of no token; (0, NO_TOKEN) is worse than every (key, token id).
const NO_TOKEN: u32 = 0xffffffffu;
const LARGEST_LOGIT: f32 = 1.0e30;
const LARGEST_LOGIT_BITS: u32 = 0x7149f2cau;
const INFINITY_BITS: u32 = 0x7f800000u;

/// The logit of these bits within -1e30 .. 1e30; NaN becomes -1e30. By integers: WGSL promises nothing for NaN and infinity.
fn finite_logit(bits: u32) -> f32 {
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > INFINITY_BITS) {
    return -LARGEST_LOGIT;
  }
  return bitcast<f32>((bits & 0x80000000u) | min(magnitude, LARGEST_LOGIT_BITS));
}

/// The logit after the repetition penalty of Hugging Face: positive ones divided, negative ones multiplied.
fn penalised(bits: u32, is_seen: bool, penalty: f32) -> f32 {
  let logit = finite_logit(bits);
  if (!is_seen) {
    return logit;
  }
  if (logit > 0.0) {
    return min(logit / penalty, LARGEST_LOGIT);
  }
  return max(logit * penalty, -LARGEST_LOGIT);
}

/// A key whose order as u32 is the order of the logits; the two zeros have one key. Never 0.
fn key_of(logit: f32) -> u32 {
  let bits = select(bitcast<u32>(logit), 0u, logit == 0.0);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn logit_of(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

/// Of two (key, token id), whether the first is the better one: the larger logit; among equals the lower id.
fn is_better(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y);
}

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, is_better(b, a));
}
