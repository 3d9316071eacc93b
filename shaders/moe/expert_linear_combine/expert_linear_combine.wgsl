// Generated rows by the down weights of their experts, added to the residual stream, for hardware adapters. expert_linear and
// moe_combine in one, with their bits, where all experts of a row are in one buffer.
//
//   o[s][n]    = sum_k W[expert_ids[r][s]][n][k] x[r][s][k]
//   out[r][n] += ((w[r][0] o[0][n] + w[r][1] o[1][n]) + w[r][2] o[2][n]) + ...
//
// x:              [rows][top_k][x_stride4 * 4] f32; padded with zeros to 32 elements
// weight:         of all experts, packed tiles of 32 outputs each (linear/pack.ts)
// scale:          f16 scales of q8 and q4, bytes of mxfp4
// expert_ids:     [rows][top_k] u32
// expert_weights: [rows][top_k] f32
// bias:           [experts][32 tiles] f32; only with BIASED: added to o
// out:            [rows][out_stride] f32; elements from out_features on are never written
//
// Grid: x = OUTS outputs (contract.wgsl, which also says in what order is summed: a slot is a segment), y = row. The slots are
// added by one fma each, from the first on, then their sum to out.
//
// Empty input: rows = 0 dispatches nothing; top_k is at least 1.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> expert_ids: array<u32>;
@group(0) @binding(4) var<storage, read> expert_weights: array<f32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

struct Params {
  top_k: u32,
  tiles: u32,
  units: u32,
  used_units: u32,
  x_stride4: u32,
  out_features: u32,
  out_stride: u32,
}
@group(0) @binding(7) var<uniform> params: Params;

const BIASED: bool = false; // variant

const TOP_K: u32 = PARTS / SUBS;

/// [slot][output]
var<workgroup> slot_sums: array<f32, TOP_K * OUTS>;

/// (row, slot 0).
var<private> first_pair: u32 = 0u;

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {}

fn load_x(pair: u32, k4: u32) -> vec4<f32> {
  return x[pair * params.x_stride4 + k4];
}

fn part_of(part: u32) -> Part {
  let slot = part / SUBS;
  let own = uncut_part(part % SUBS, params.used_units);
  let tile = expert_ids[first_pair + slot] * params.tiles;
  return Part(own.first, own.count, 0u, 0u, tile * params.units * 32u, slot);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  first_pair = group.y * TOP_K;
  let first_out = group.x * OUTS;
  contract(first_out / 32u * params.units * 32u + first_out % 32u + local.x, 0u, first_pair, local.x, local.y);

  var index = thread;
  for (var left = steps(thread, TOP_K * OUTS, THREADS); left > 0u; left--) {
    var sum = segment_sum(index / OUTS, 0u, 0u, index % OUTS);
    if (BIASED) {
      sum += bias[expert_ids[first_pair + index / OUTS] * params.tiles * 32u + first_out + index % OUTS];
    }
    slot_sums[index] = sum;
    index += THREADS;
  }
  workgroupBarrier();
  let n = first_out + thread;
  if (thread < OUTS && n < params.out_features) {
    var sum = 0.0;
    // Not TOP_K: compilers would unroll the loop and pull out's element into its sum.
    for (var left = params.top_k; left > 0u; left--) {
      let slot = params.top_k - left;
      sum = fma(expert_weights[first_pair + slot], slot_sums[slot * OUTS + thread], sum);
    }
    out[group.y * params.out_stride + n] += sum;
  }
}
