// Generated rows by the weights of their experts, for hardware adapters.
//
//   out[r][s][n] = sum_k W[expert_ids[r][s]][n][k] x[r][k]           (x[r][s][k] where x_divisor is 1)
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = gate / (1 + exp(-gate)) * up
//
// x:          [rows][x_stride4 * 4] f32, or with x_divisor 1 [rows][top_k][x_stride4 * 4]; padded with zeros to 32 elements
// weight:     experts expert_first .. expert_first + expert_count - 1, `tiles` packed tiles of 32 outputs each
//             (linear/pack.ts); SWIGLU: tiles of gate rows, then as many of up rows
// scale:      f16 scales of q8 and q4
// expert_ids: [rows][top_k] u32
// out:        [rows][top_k][out_stride] f32; elements from out_features on, and (row, slot)s whose expert is not in this buffer,
//             are never written
//
// Grid: x = tile of 32 outputs, y = row * top_k + slot. A workgroup is 32 outputs x SLICES slices of the contraction: slice i takes
// the units i, i + SLICES, ... of K, by (x + y) + (z + w) of a vec4; then the slices are added in order.
//
// SLICES: fixed by the plan, as it changes bits. SWIGLU: from the problem.
// Empty input: rows = 0 dispatches nothing.

const SLICES: u32 = 8u; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> expert_ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

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
}
@group(0) @binding(5) var<uniform> params: Params;

/// [slice][lane] of the sum (SWIGLU: of the gate), and of up.
var<workgroup> partials: array<f32, SLICES * 32u>;
var<workgroup> up_partials: array<f32, SLICES * 32u>;

/// Elements 4 * k4 .. 4 * k4 + 3 of a row of x.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return x[row * params.x_stride4 + k4];
}

fn horizontal(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

@compute @workgroup_size(32, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let pair = group.y;
  // Experts before the shard wrap around to large numbers.
  let expert = expert_ids[pair] - params.expert_first;
  if (expert >= params.expert_count) {
    return;
  }
  let lane = local.x;
  let x_row = pair / params.x_divisor;
  let tile = expert * params.tiles * params.matrices + group.x;
  let first = tile * params.units * 32u + lane;
  let first_up = first + params.tiles * params.units * 32u;
  var sum = vec4<f32>();
  var up = vec4<f32>();
  for (var unit = local.y; unit < params.used_units; unit += SLICES) {
    let values = load_x_unit(x_row, unit * UNIT4);
    sum = unit_fma(sum, load_unit(first + unit * 32u), values);
    if (SWIGLU) {
      up = unit_fma(up, load_unit(first_up + unit * 32u), values);
    }
  }
  partials[thread] = horizontal(sum);
  if (SWIGLU) {
    up_partials[thread] = horizontal(up);
  }
  workgroupBarrier();

  if (local.y > 0u) {
    return;
  }
  var total = partials[lane];
  var up_total = 0.0;
  if (SWIGLU) {
    up_total = up_partials[lane];
  }
  for (var slice = 1u; slice < SLICES; slice++) {
    total += partials[slice * 32u + lane];
    if (SWIGLU) {
      up_total += up_partials[slice * 32u + lane];
    }
  }
  write_output(pair, group.x * 32u + lane, total, select(total, up_total, SWIGLU));
}
