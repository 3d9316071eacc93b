// Generated rows by the down weights of their experts, added to the residual stream, for hardware adapters. expert_linear and
// moe_combine in one, with their bits, where all experts of a row are in one buffer. SHARED: of a lone row, before it linear of a
// dense MLP's down, with its bits.
//
//   SHARED: out[n] += scale sum_s sum_{k in segment s} V[n][k] x[top_k][k]
//   o[s][n]    = sum_k W[expert_ids[r][s]][n][k] x[r][s][k]
//   out[r][n] += ((w[r][0] o[0][n] + w[r][1] o[1][n]) + w[r][2] o[2][n]) + ...
//
// x:              [rows][top_k][x_stride4 * 4] f32, then with SHARED V's; padded with zeros to 32 elements
// weight:         of all experts, packed tiles of 32 outputs each (linear/pack.ts); from unit shared_first on V
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
  shared_first: u32,
  shared_units: u32,
  shared_in: u32,
  shared_scale: f32,
}
@group(0) @binding(7) var<uniform> params: Params;

const BIASED: bool = false; // variant

/// Of V's contraction: none, or a divisor of SUBS.
const SHARED_SEGMENTS: u32 = 0u; // variant
const SHARED_ALIGN: u32 = 32u; // variant
const SHARED: bool = SHARED_SEGMENTS > 0u;
/// Parts of a segment of V.
const SHARED_SUBS: u32 = SUBS / max(SHARED_SEGMENTS, 1u);

/// V has as many parts as a slot, behind them.
const TOP_K: u32 = PARTS / SUBS - select(0u, 1u, SHARED);

/// [slot][output]
var<workgroup> slot_sums: array<f32, TOP_K * OUTS>;

/// (row, slot 0).
var<private> first_pair: u32 = 0u;
/// Of the workgroup's outputs.
var<private> first_tile: u32 = 0u;

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {}

fn load_x(pair: u32, k4: u32) -> vec4<f32> {
  return x[pair * params.x_stride4 + k4];
}

/// Part segment * SHARED_SUBS + sub of V.
fn shared_part(part: u32) -> Part {
  let segment = part / SHARED_SUBS;
  let start = segment_start(segment, params.shared_in, SHARED_SEGMENTS, SHARED_ALIGN);
  let end = segment_start(segment + 1u, params.shared_in, SHARED_SEGMENTS, SHARED_ALIGN);
  let first = start / UNIT + part % SHARED_SUBS;
  let count = steps(first, (end + UNIT - 1u) / UNIT, SHARED_SUBS);
  let base = params.shared_first + first_tile * (params.shared_units - params.units) * 32u;
  return Part(select(first, 0u, count == 0u), count, SHARED_SUBS, 0u, 0u, base, TOP_K);
}

fn part_of(part: u32) -> Part {
  let slot = part / SUBS;
  if (SHARED && slot == TOP_K) {
    return shared_part(part % SUBS);
  }
  let own = uncut_part(part % SUBS, params.used_units);
  let tile = expert_ids[first_pair + slot] * params.tiles;
  return Part(own.first, own.count, SUBS, 0u, 0u, tile * params.units * 32u, slot);
}

/// The parts of each segment in order, then the segments in a tree.
fn shared_sum(out_lane: u32) -> f32 {
  var at = (TOP_K * SUBS * EACH + out_lane / LANES) * LANES + out_lane % LANES;
  var tree = Tree();
  var total = 0.0;
  var segment = 0u;
  for (var left = loop_count(SHARED_SEGMENTS); left >= 1u; left--) {
    var sum = partials[at];
    for (var others = loop_count(SHARED_SUBS) - 1u; others >= 1u; others--) {
      at += EACH * LANES;
      sum += partials[at];
    }
    at += EACH * LANES;
    total = tree_sum(&tree, segment, 0u, left > 1u, sum);
    segment++;
  }
  return total;
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  first_pair = group.y * TOP_K;
  let first_out = group.x * OUTS;
  first_tile = first_out / 32u;
  contract(first_tile * params.units * 32u + first_out % 32u + local.x, 0u, first_pair, local.x, local.y);

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
    let at = group.y * params.out_stride + n;
    var before = out[at];
    if (SHARED) {
      before = fma(shared_sum(thread), params.shared_scale, before);
    }
    out[at] = before + sum;
  }
}
