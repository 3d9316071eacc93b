// Running sums over the bins of weights.wgsl, and the goals that top-k, top-p and the draw look for in them.

/// Tokens that are compared one with another: a bin that has more is sorted into bins again.
const CANDIDATES: u32 = 256u;
const GROUP: u32 = 16u;

/// Partial sums of `accumulate_bins` (3 words each), or candidates (key, id, weight).
var<workgroup> scratch: array<u32, 3u * (CANDIDATES + GROUP)>;

/// Sums are (count, mass low word, mass high word).
fn sum_of(a: vec3<u32>, b: vec3<u32>) -> vec3<u32> {
  let low = a.y + b.y;
  return vec3<u32>(a.x + b.x, low, a.z + b.z + select(0u, 1u, low < b.y));
}

/// A goal is (count, 0, 0) by count, (0, mass low, mass high) by mass.
fn meets(sum: vec3<u32>, goal: vec3<u32>) -> bool {
  if (goal.x != 0u) {
    return sum.x >= goal.x;
  }
  return sum.z > goal.z || (sum.z == goal.z && sum.y >= goal.y);
}

/// floor(mass * fraction / 2^32), and in z whether something was cut off.
fn part_of(mass: vec2<u32>, fraction: u32) -> vec3<u32> {
  let low = multiply_wide(mass.x, fraction);
  let high = multiply_wide(mass.y, fraction);
  let sum = high.x + low.y;
  return vec3<u32>(sum, high.y + select(0u, 1u, sum < low.y), min(low.x, 1u));
}

fn add_to_mass(mass: vec2<u32>, addend: u32) -> vec2<u32> {
  let low = mass.x + addend;
  return vec2<u32>(low, mass.y + select(0u, 1u, low < addend));
}

/// The least mass, at least 1, that is top_p of `mass`.
fn top_p_goal(mass: vec2<u32>, top_p: f32) -> vec3<u32> {
  let part = part_of(mass, u32(top_p * 4294967296.0));
  let least = add_to_mass(part.xy, part.z);
  return vec3<u32>(0u, select(least.x, 1u, all(least == vec2<u32>())), least.y);
}

/// The mass at which `random`, of 2^32, falls; the token that reaches it is drawn.
fn draw_goal(mass: vec2<u32>, random: u32) -> vec3<u32> {
  return vec3<u32>(0u, add_to_mass(part_of(mass, random).xy, 1u));
}

fn random_of(chosen: SamplingParams) -> u32 {
  return philox(vec4<u32>(chosen.counter, 0u, 0u, 0u), vec2<u32>(chosen.seed_low, chosen.seed_high)).x;
}

fn set_bin_sum(bin: u32, sum: vec3<u32>) {
  atomicStore(&bins[bin], sum.x);
  atomicStore(&bins[BINS + bin], sum.y);
  atomicStore(&bins[2u * BINS + bin], sum.z);
}

fn scratch_sum(place: u32) -> vec3<u32> {
  return vec3<u32>(scratch[3u * place], scratch[3u * place + 1u], scratch[3u * place + 2u]);
}

fn set_scratch_sum(place: u32, sum: vec3<u32>) {
  scratch[3u * place] = sum.x;
  scratch[3u * place + 1u] = sum.y;
  scratch[3u * place + 2u] = sum.z;
}

/// Replaces each bin by the sum of it and all before it.
fn accumulate_bins(thread: u32) {
  let own = BINS / THREADS;
  let end = (thread + 1u) * own;
  var sum = vec3<u32>();
  for (var left = own * params.one; left > 0u; left--) {
    sum = sum_of(sum, bin_sum(end - left));
  }
  set_scratch_sum(thread, sum);
  workgroupBarrier();
  if (thread < THREADS / GROUP) {
    sum = vec3<u32>();
    for (var left = GROUP * params.one; left > 0u; left--) {
      sum = sum_of(sum, scratch_sum(thread * GROUP + left - 1u));
    }
    set_scratch_sum(THREADS + thread, sum);
  }
  workgroupBarrier();
  sum = vec3<u32>();
  for (var left = thread / GROUP; left > 0u; left--) {
    sum = sum_of(sum, scratch_sum(THREADS + left - 1u));
  }
  for (var left = thread % GROUP; left > 0u; left--) {
    sum = sum_of(sum, scratch_sum(thread - left));
  }
  for (var left = own * params.one; left > 0u; left--) {
    sum = sum_of(sum, bin_sum(end - left));
    set_bin_sum(end - left, sum);
  }
  workgroupBarrier();
}
