// The experts of each row and their weights, from the router's logits.
//
//   score[e] = exp(logit[e] - max) / sum_e exp(logit[e] - max), or 1 / (1 + exp(-logit[e])) with `sigmoid`
//   compared[e] = score[e] + correction_bias[e]                      (with `bias`)
//   group g (experts / groups neighbours) is compared by its largest compared[e], or with `two_best` by the sum of its two largest
//   chosen: the top_k largest compared[e] in the topk_groups best groups; of equals the lower group and the lower expert
//   weight = score[e] (/ (sum of the chosen scores + 1e-20) with `normalise`) * scaling
//
// logits:          [rows][stride] f32
// correction_bias: [experts] f32; only with `bias`
// expert_ids:      [rows][top_k] u32, ascending in a row
// expert_weights:  [rows][top_k] f32
// row_count:       [1] u32, receives the number of rows of this step
//
// Grid: x = row, a workgroup each. Sums over experts are in ascending order.
//
// CAPACITY: at least `experts`, 64 to 512, by the plan. THREADS: invocations per workgroup, 1..256, by the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing, and leaves row_count as it was.

const THREADS: u32 = 128u; // variant
const CAPACITY: u32 = 256u; // variant

const MAX_GROUPS: u32 = 64u;
const MAX_TOP_K: u32 = 32u;
/// Below every score: what an expert of a group that isn't chosen is compared by.
const CLOSED: f32 = -3.0e38;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> correction_bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> expert_ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> expert_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> row_count: array<u32>;

struct Params {
  experts: u32,
  top_k: u32,
  groups: u32,
  topk_groups: u32,
  sigmoid: u32,
  two_best: u32,
  normalise: u32,
  bias: u32,
  stride: u32,
  scaling: f32,
}
@group(0) @binding(5) var<uniform> params: Params;

/// Logits at first, so that `scores` can be written while they are read.
var<workgroup> compared: array<f32, CAPACITY>;
/// With softmax still to be divided by their sum.
var<workgroup> scores: array<f32, CAPACITY>;
var<workgroup> chosen: array<u32, CAPACITY>;
var<workgroup> group_scores: array<f32, MAX_GROUPS>;
var<workgroup> chosen_scores: array<f32, MAX_TOP_K>;

fn largest_logit() -> f32 {
  var largest = compared[0];
  for (var left = params.experts - 1u; left > 0u; left--) {
    largest = max(largest, compared[params.experts - left]);
  }
  return largest;
}

fn score_sum() -> f32 {
  var total = scores[0];
  for (var left = params.experts - 1u; left > 0u; left--) {
    total += scores[params.experts - left];
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
  for (var left = size; left > 0u; left--) {
    let score = compared[end - left];
    second = max(second, min(best, score));
    best = max(best, score);
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
  for (var left = params.groups; left > 0u; left--) {
    let other = left - 1u;
    rank += select(0u, 1u, beats(group_scores[other], other, mine, group));
  }
  return rank;
}

fn expert_rank(e: u32) -> u32 {
  let mine = compared[e];
  var rank = 0u;
  for (var left = params.experts; left > 0u; left--) {
    let other = left - 1u;
    rank += select(0u, 1u, beats(compared[other], other, mine, e));
  }
  return rank;
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let row = group.x;
  let experts = params.experts;
  var e = thread;
  for (var left = steps(thread, experts, THREADS); left > 0u; left--) {
    compared[e] = logits[row * params.stride + e];
    e += THREADS;
  }
  workgroupBarrier();

  var largest = 0.0;
  if (params.sigmoid == 0u) {
    largest = largest_logit();
  }
  e = thread;
  for (var left = steps(thread, experts, THREADS); left > 0u; left--) {
    if (params.sigmoid == 1u) {
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
      var slot = 0u;
      for (var before = e; before > 0u; before--) {
        slot += chosen[before - 1u];
      }
      // More than top_k are chosen only where a logit is NaN.
      if (slot < params.top_k) {
        expert_ids[row * params.top_k + slot] = e;
        chosen_scores[slot] = scores[e] / total;
      }
    }
    e += THREADS;
  }
  workgroupBarrier();

  var slot = thread;
  for (var left = steps(thread, params.top_k, THREADS); left > 0u; left--) {
    var divisor = 1.0;
    if (params.normalise == 1u) {
      divisor = chosen_scores[0];
      for (var others = params.top_k - 1u; others > 0u; others--) {
        divisor += chosen_scores[params.top_k - others];
      }
      divisor += 1e-20;
    }
    expert_weights[row * params.top_k + slot] = chosen_scores[slot] / divisor * params.scaling;
    slot += THREADS;
  }
  if (row == groups.x - 1u && thread == 0u) {
    row_count[0] = groups.x;
  }
}
