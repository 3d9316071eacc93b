// Generated rows by the weights of their experts, for software adapters, which pay dearly for barriers.
//
//   out[r][s][n] = sum_k W[expert_ids[r][s]][n][k] x[r][k]           (x[r][s][k] where x_divisor is 1)
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = gate / (1 + exp(-gate)) * up; CLAMPED: expert_output.wgsl
//   BIASED: each sum plus its bias
//
// x:           [rows][x_stride4 * 4] f32, or with x_divisor 1 [rows][top_k][x_stride4 * 4]; padded with zeros to 32 elements
// weight:      experts expert_first .. expert_first + expert_count - 1, `tiles` packed tiles of 32 outputs each
//              (linear/pack.ts); SWIGLU: tiles of gate rows, then as many of up rows
// scale:       f16 scales of q8 and q4, bytes of mxfp4
// expert_ids:  [rows][top_k] u32
// norm_weight: [model_in_features] f32, padded to a multiple of 4; only where x is normalised (linear/linear/x_normed.wgsl)
// bias:        [experts of the rank][matrices][32 tiles] f32, the shard's from expert bias_first on; only with BIASED
// out:         [rows][top_k][out_stride] f32; elements from out_features on, and (row, slot)s whose expert is not in this buffer,
//              are never written
//
// Grid: x = tile of 32 outputs, y = row * top_k + slot. One invocation computes 2 outputs (serial.wgsl).
//
// SERIAL_ROWS 1. SWIGLU: from the problem.
// Empty input: rows = 0 dispatches nothing.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> expert_ids: array<u32>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

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
}
@group(0) @binding(7) var<uniform> params: Params;

const THREADS: u32 = 16u;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let pair = group.y;
  // Experts before the shard wrap around to large numbers.
  let expert = expert_ids[pair] - params.expert_first;
  if (expert >= params.expert_count) {
    return;
  }
  let tile = expert * params.tiles * params.matrices + group.x;
  let x_row = pair / params.x_divisor;
  stage_x(x_row, thread, ask_x(x_row, thread));
  // Without SWIGLU, `gates` stays empty and `sums` are the outputs. One call of contract compiles in half the time of two.
  var gates = vec4<f32>();
  var sums = vec4<f32>();
  for (var matrix = 0u; matrix < params.matrices; matrix++) {
    gates = sums;
    sums = contract(tile + matrix * params.tiles, thread, x_row, x_row);
  }
  let n = group.x * 32u + thread;
  write_output(pair, expert, n, gates.x, sums.x);
  write_output(pair, expert, n + SERIAL_STEP, gates.y, sums.y);
}
