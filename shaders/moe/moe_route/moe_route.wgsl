// The experts of each row and their weights, from the router's logits.
//
//   score[e] = exp(logit[e] - max) / sum_e exp(logit[e] - max), or 1 / (1 + exp(-logit[e])) with `sigmoid`
//   compared[e] = score[e] + correction_bias[e]                      (with `bias`)
//   group g (experts / groups neighbours) is compared by its largest compared[e], or with `two_best` by the sum of its two largest
//   chosen: the top_k largest compared[e] in the topk_groups best groups; of equals the lower group and the lower expert
//   weight = score[e] (/ (sum of the chosen scores + 1e-20) with `normalise`) * scaling, and with SCALED * expert_scale[e]
//
// logits:          [rows][stride] f32
// correction_bias: [experts] f32; only with `bias`
// expert_scale:    [experts] f32; only with SCALED
// expert_ids:      [rows][top_k] u32, ascending in a row
// expert_weights:  [rows][top_k] f32
// row_count:       [1] u32, receives the number of rows of this step
//
// Grid: x = row, a workgroup each. Sums over experts are in ascending order (route.wgsl, joined before).
//
// THREADS: invocations per workgroup, 1..256, by the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing, and leaves row_count as it was.

const THREADS: u32 = 128u; // variant
const SCALED: bool = false; // variant

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> correction_bias: array<f32>;
@group(0) @binding(2) var<storage, read> expert_scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> expert_ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> expert_weights: array<f32>;
@group(0) @binding(5) var<storage, read_write> row_count: array<u32>;

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
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  choose_experts(group.x, thread);
  write_choice(group.x, thread);
  if (SCALED) {
    // Those that the thread wrote.
    var slot = thread;
    for (var left = steps(thread, params.top_k, THREADS); left > 0u; left--) {
      expert_weights[group.x * params.top_k + slot] *= expert_scale[chosen_ids[slot]];
      slot += THREADS;
    }
  }
  if (group.x == groups.x - 1u && thread == 0u) {
    row_count[0] = groups.x;
  }
}
