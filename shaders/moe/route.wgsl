// How a row's experts are chosen: the equations are moe_route.wgsl's. Joined after lib/steps.wgsl. The kernel declares THREADS, the
// bindings logits, correction_bias, expert_ids and expert_weights, and ROUTE_PARAMS (moe_route/index.ts) as `params`.
//
// CAPACITY: at least `experts`, 64 to 512, by the plan. AHEAD: elements of workgroup memory that a thread asks for at a time, a divisor
// of MAX_TOP_K, by the adapter; changes no bit.

const CAPACITY: u32 = 256u; // variant
const AHEAD: u32 = 16u; // variant

const MAX_GROUPS: u32 = 64u;
const MAX_TOP_K: u32 = 32u;
/// Below every score: what an expert of a group that isn't chosen is compared by.
const CLOSED: f32 = -3.0e38;

/// Logits at first, so that `scores` can be written while they are read. What stands behind the last expert up to a multiple of AHEAD
/// is never chosen, and its score is 0.
var<workgroup> compared: array<f32, CAPACITY>;
/// With softmax still to be divided by their sum.
var<workgroup> scores: array<f32, CAPACITY>;
var<workgroup> chosen: array<u32, CAPACITY>;
var<workgroup> group_scores: array<f32, MAX_GROUPS>;
/// By slot, ascending; 0 where fewer are chosen, because a logit is NaN.
var<workgroup> chosen_ids: array<u32, MAX_TOP_K>;
var<workgroup> chosen_scores: array<f32, MAX_TOP_K>;

fn largest_logit() -> f32 {
  var largest = CLOSED;
  var at = 0u;
  for (var left = steps(0u, params.experts, AHEAD); left > 0u; left--) {
    for (var i = 0u; i < AHEAD; i++) {
      largest = max(largest, compared[at + i]);
    }
    at += AHEAD;
  }
  return largest;
}

fn score_sum() -> f32 {
  var total = 0.0;
  var at = 0u;
  for (var left = steps(0u, params.experts, AHEAD); left > 0u; left--) {
    for (var i = 0u; i < AHEAD; i++) {
      total += scores[at + i];
    }
    at += AHEAD;
  }
  return total;
}

fn sigmoid(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn group_score(group: u32) -> f32 {
  let size = params.experts / params.groups;
  var best = CLOSED;
  var second = CLOSED;
  let end = (group + 1u) * size;
  var at = group * size;
  for (var left = steps(0u, size, AHEAD); left > 0u; left--) {
    for (var i = 0u; i < AHEAD; i++) {
      let score = select(CLOSED, compared[min(at + i, CAPACITY - 1u)], at + i < end);
      second = max(second, min(best, score));
      best = max(best, score);
    }
    at += AHEAD;
  }
  return select(best, best + second, params.two_best == 1u);
}

fn beats(score: f32, index: u32, other_score: f32, other_index: u32) -> bool {
  if (score == other_score) {
    return index < other_index;
  }
  return score > other_score;
}

/// How many groups are better than this one.
fn group_rank(group: u32) -> u32 {
  let mine = group_scores[group];
  var rank = 0u;
  var at = 0u;
  for (var left = steps(0u, params.groups, AHEAD); left > 0u; left--) {
    for (var i = 0u; i < AHEAD; i++) {
      let other = at + i;
      rank += select(0u, 1u, other < params.groups && beats(group_scores[other], other, mine, group));
    }
    at += AHEAD;
  }
  return rank;
}

fn expert_rank(e: u32) -> u32 {
  let mine = compared[e];
  var rank = 0u;
  var at = 0u;
  for (var left = steps(0u, params.experts, AHEAD); left > 0u; left--) {
    for (var i = 0u; i < AHEAD; i++) {
      rank += select(0u, 1u, beats(compared[at + i], at + i, mine, e));
    }
    at += AHEAD;
  }
  return rank;
}

/// How many experts before this one are chosen.
fn chosen_before(e: u32) -> u32 {
  var before = 0u;
  var at = 0u;
  for (var left = steps(0u, e, AHEAD); left > 0u; left--) {
    for (var i = 0u; i < AHEAD; i++) {
      before += select(0u, chosen[at + i], at + i < e);
    }
    at += AHEAD;
  }
  return before;
}

/// Leaves a row's experts and their scores in `chosen_ids` and `chosen_scores`. In uniform control flow.
fn choose_experts(row: u32, thread: u32) {
  let experts = params.experts;
  let padded = steps(0u, experts, AHEAD) * AHEAD;
  var e = thread;
  for (var left = steps(thread, padded, THREADS); left > 0u; left--) {
    compared[e] = CLOSED;
    if (e < experts) {
      compared[e] = logits[row * params.stride + e];
    }
    e += THREADS;
  }
  workgroupBarrier();

  var largest = 0.0;
  if (params.sigmoid == 0u) {
    largest = largest_logit();
  }
  e = thread;
  for (var left = steps(thread, padded, THREADS); left > 0u; left--) {
    if (e >= experts) {
      scores[e] = 0.0;
    } else if (params.sigmoid == 1u) {
      scores[e] = sigmoid(compared[e]);
    } else {
      scores[e] = exp(compared[e] - largest);
    }
    e += THREADS;
  }
  workgroupBarrier();

  var total = 1.0;
  if (params.sigmoid == 0u) {
    total = score_sum();
  }
  e = thread;
  for (var left = steps(thread, experts, THREADS); left > 0u; left--) {
    var score = scores[e] / total;
    if (params.bias == 1u) {
      score += correction_bias[e];
    }
    compared[e] = score;
    e += THREADS;
  }
  workgroupBarrier();

  if (params.groups > 1u) {
    var g = thread;
    for (var left = steps(thread, params.groups, THREADS); left > 0u; left--) {
      group_scores[g] = group_score(g);
      g += THREADS;
    }
    workgroupBarrier();
    let size = experts / params.groups;
    e = thread;
    for (var left = steps(thread, experts, THREADS); left > 0u; left--) {
      if (group_rank(e / size) >= params.topk_groups) {
        compared[e] = CLOSED;
      }
      e += THREADS;
    }
    workgroupBarrier();
  }

  e = thread;
  for (var left = steps(thread, experts, THREADS); left > 0u; left--) {
    chosen[e] = select(0u, 1u, expert_rank(e) < params.top_k);
    e += THREADS;
  }
  workgroupBarrier();

  e = thread;
  for (var left = steps(thread, experts, THREADS); left > 0u; left--) {
    if (chosen[e] == 1u) {
      let slot = chosen_before(e);
      // More than top_k are chosen only where a logit is NaN.
      if (slot < params.top_k) {
        chosen_ids[slot] = e;
        chosen_scores[slot] = scores[e] / total;
      }
    }
    e += THREADS;
  }
  workgroupBarrier();
}

/// What was chosen for a row, to expert_ids and expert_weights.
fn write_choice(row: u32, thread: u32) {
  var slot = thread;
  for (var left = steps(thread, params.top_k, THREADS); left > 0u; left--) {
    var divisor = 1.0;
    if (params.normalise == 1u) {
      divisor = 0.0;
      var at = 0u;
      for (var others = steps(0u, params.top_k, AHEAD); others > 0u; others--) {
        for (var i = 0u; i < AHEAD; i++) {
          divisor += select(0.0, chosen_scores[at + i], at + i < params.top_k);
        }
        at += AHEAD;
      }
      divisor += 1e-20;
    }
    expert_ids[row * params.top_k + slot] = chosen_ids[slot];
    expert_weights[row * params.top_k + slot] = chosen_scores[slot] / divisor * params.scaling;
    slot += THREADS;
  }
}
