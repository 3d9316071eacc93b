// A lone generated row by gate and up of its experts, which each workgroup chooses by itself, for hardware adapters: moe_route and
// expert_linear in one, with their bits. SHARED: behind the slots gate and up of a dense MLP, with the bits of linear.
//
//   expert_ids, expert_weights = moe_route(logits)
//   out[s]     = swiglu(W[expert_ids[s]] x)                          (expert_output.wgsl)
//   SHARED: gate = V[n] x, up = V[32 shared_tiles + n] x, out[top_k * out_stride + n] = gate / (1 + exp(-gate)) * up
//
// x:               [x_stride4 * 4] f32, normalised here (linear/linear/x_normed.wgsl)
// weight:          experts expert_first .. expert_first + expert_count - 1, tiles of gate rows, then as many of up rows each
//                  (linear/pack.ts); from unit shared_first on V likewise
// scale:           f16 scales of q8 and q4, bytes of mxfp4
// norm_weight:     [model_in_features] f32, padded to a multiple of 4
// bias:            [experts of the rank][matrices][32 tiles] f32, the shard's from expert bias_first on; only with BIASED
// logits:          [experts] f32
// correction_bias: [experts] f32; only with `bias`
// out:             [top_k][out_stride] f32, then with SHARED [shared_width]; nothing else is written, nor slots of other experts
// expert_ids, expert_weights: [top_k]
//
// Grid: x = OUTS outputs (contract.wgsl), y = slot; behind the slots, as many y as there must be, workgroups of V.

/// V is there.
const SHARED: bool = false; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> logits: array<f32>;
@group(0) @binding(6) var<storage, read> correction_bias: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;
@group(0) @binding(8) var<storage, read_write> expert_ids: array<u32>;
@group(0) @binding(9) var<storage, read_write> expert_weights: array<f32>;

struct Params {
  rows: u32,
  x_divisor: u32,
  top_k: u32,
  expert_first: u32,
  expert_count: u32,
  tiles: u32,
  matrices: u32,
  units: u32,
  used_units: u32,
  x_stride4: u32,
  out_features: u32,
  out_stride: u32,
  bias_first: u32,
  alpha: f32,
  limit: f32,
  model_in_features: u32,
  eps: f32,
  experts: u32,
  groups: u32,
  topk_groups: u32,
  sigmoid: u32,
  two_best: u32,
  normalise: u32,
  bias: u32,
  stride: u32,
  scaling: f32,
  shared_first: u32,
  shared_tiles: u32,
  shared_width: u32,
}
@group(0) @binding(10) var<uniform> params: Params;

/// Of the workgroup's slot.
var<workgroup> own_expert: u32;

fn part_of(part: u32) -> Part {
  return uncut_part(part, params.used_units);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let slot = group.y;
  let is_shared = SHARED && slot >= params.top_k;
  var first_out = group.x * OUTS;
  var first_unit = params.shared_first;
  var matrix_tiles = params.shared_tiles;
  var expert = 0u;
  if (is_shared) {
    first_out += (slot - params.top_k) * groups.x * OUTS;
    if (first_out >= params.shared_width) {
      return;
    }
  } else {
    choose_experts(0u, thread);
    if (slot == 0u && group.x == 0u) {
      write_choice(0u, thread);
    }
    if (thread == 0u) {
      // Experts before the shard wrap around to large numbers.
      own_expert = chosen_ids[slot] - params.expert_first;
    }
    let own = workgroupUniformLoad(&own_expert);
    if (own >= params.expert_count) {
      return;
    }
    expert = own;
    matrix_tiles = params.tiles;
    first_unit = expert * params.tiles * params.matrices * params.units * 32u;
  }
  let base = first_unit + first_out / 32u * params.units * 32u + first_out % 32u + local.x;
  contract(base, matrix_tiles * params.units * 32u, 0u, local.x, local.y);

  for (var i = 0u; i < WRITES; i++) {
    let out_lane = i * THREADS + thread;
    if (out_lane < OUTS) {
      let n = first_out + out_lane;
      let gate = sum_segments(0u, 0u, out_lane);
      let up = sum_segments(MATRICES - 1u, 0u, out_lane);
      if (!is_shared) {
        write_output(slot, expert, n, gate, up);
      } else if (n < params.shared_width) {
        // As linear has it.
        out[params.top_k * params.out_stride + n] = gate / (1.0 + exp(min(-gate, 87.0))) * up;
      }
    }
  }
}
