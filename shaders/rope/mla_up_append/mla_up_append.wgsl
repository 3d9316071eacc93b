// MLA before attention where q has a bottleneck, in one: its norm, each head's rows of q's up-projection (linear), and of that query in
// workgroup memory what mla_absorb_append does: into the latent space by the head's matrix, and the rotation of q_pe; beside the heads
// the norm of the latent, the rotation of k_pe and the append. For hardware adapters; the same bits as those kernels.
//
//   q[h]           = W_up[h] (rms_norm(x[0..L)) * norm_weight[0..L))
//   q_abs[h][n]    = sum_k W[h][n][k] q[h][k]             k < nope, n < R
//   q_abs[h][R..)  = rope(q[h][nope..)),   cache token = (rms_norm(latent) * its norm_weight, rope(k_pe))
//
// x            [rows][kv_units*4] f32: the bottleneck (L); from 4 kv_start: latent (R), then k_pe (rope)
// weight       of W_up, packed tiles of 32 output rows (linear/pack.ts), 16-byte units; a head has nope + rope rows
// scale        f16 scales of q8 and q4
// norm_weight  of the bottleneck [L] f32; from 4 latent_norm: of the latent [R]
// absorb       W, of f16 (HALVES) or f32, packed likewise; head h starts at tile h * (tiles of a head)
// rope_table   [position][d/2] (cos, sin) f32
// row_info     [rows] (position, slot); position INACTIVE: the row isn't rotated nor appended
// block_table  [slot][table_stride] physical block of each BLOCK tokens
// latent_cache see latent_layout.wgsl, KvUnit
// out          q_abs [rows][q_abs_units*4] f32; head h at h (R + d)
//
// Grid: x = head; behind the heads one workgroup, which appends; y = row. A workgroup contracts OUTS of a head's rows (contract.wgsl) in
// each of TURNS, and asks for the next ones' weights before it does.

const TURNS: u32 = 1u; // variant
const HALVES: bool = true; // variant
// Of a row of `absorb`: at most as many as contract.wgsl has parts, so that each is a part of its own.
const ABSORB_UNITS: u32 = 8u; // variant

const HEAD: u32 = TURNS * OUTS;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> absorb: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> rope_table: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(7) var<storage, read> block_table: array<u32>;
@group(0) @binding(8) var<storage, read_write> latent_cache: array<KvUnit>;
@group(0) @binding(9) var<storage, read_write> out: array<f32>;

struct Params {
  model_in_features: u32,
  x_stride4: u32,
  units: u32,
  tile_units: u32,
  absorb_tile_units: u32,
  latent_norm: u32,
  heads: u32,
  rank: u32,
  rope_units: u32,
  nope_units: u32,
  q_units: u32,
  q_start: u32,
  kv_units: u32,
  kv_start: u32,
  q_abs_units: u32,
  table_stride: u32,
  eps: f32,
}
@group(0) @binding(10) var<uniform> params: Params;

// The head's query.
var<workgroup> query: array<f32, HEAD>;

fn part_of(part: u32) -> Part {
  return uncut_part(part, params.units);
}

// Unit 0 of a thread's first row in a turn.
fn turn_base(head: u32, turn: u32, lane: u32) -> u32 {
  let first = (head * TURNS + turn) * OUTS;
  return first / 32u * params.tile_units * 32u + first % 32u + lane;
}

fn query_unit(unit: u32) -> vec4<f32> {
  return vec4<f32>(query[4u * unit], query[4u * unit + 1u], query[4u * unit + 2u], query[4u * unit + 3u]);
}

fn load_q(row: u32, head: u32, unit: u32) -> vec4<f32> {
  return query_unit(unit);
}

fn load_kv(unit: u32) -> vec4<f32> {
  return x[unit];
}

fn latent_weight(unit: u32) -> vec4<f32> {
  return norm_weight[params.latent_norm + unit];
}

// The row of output n.
fn absorb_row(head: u32, n: u32) -> array<vec4<u32>, ABSORB_UNITS> {
  let tile = head * ((params.rank + 31u) / 32u) + n / 32u;
  var words = array<vec4<u32>, ABSORB_UNITS>();
  for (var unit = 0u; unit < ABSORB_UNITS; unit++) {
    words[unit] = absorb[(tile * params.absorb_tile_units + unit) * 32u + n % 32u];
  }
  return words;
}

fn add_product(sum: vec2<f32>, w: vec4<f32>, v: vec4<f32>) -> vec2<f32> {
  return fma(w.zw, v.zw, fma(w.xy, v.xy, sum));
}

// A row by the query, as contract.wgsl sums it.
fn absorbed(words: array<vec4<u32>, ABSORB_UNITS>) -> f32 {
  var total = 0.0;
  for (var unit = 0u; unit < ABSORB_UNITS; unit++) {
    let word = words[unit];
    // 0, which compilers don't see: they would make a product of the first fma, and other sums of that.
    var sum = vec2<f32>(f32(params.rank % 4u));
    if (HALVES) {
      sum = add_product(sum, vec4<f32>(unpack2x16float(word.x), unpack2x16float(word.y)), query_unit(2u * unit));
      sum = add_product(sum, vec4<f32>(unpack2x16float(word.z), unpack2x16float(word.w)), query_unit(2u * unit + 1u));
    } else {
      sum = add_product(sum, bitcast<vec4<f32>>(word), query_unit(unit));
    }
    total = select(total + (sum.x + sum.y), sum.x + sum.y, unit == 0u);
  }
  // The empty parts behind them make +0 of -0.
  return select(total, 0.0, ABSORB_UNITS < PARTS && total == 0.0);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let head = group.x;
  let row = group.y;
  if (head >= params.heads) {
    rope_and_append(0u, row, thread);
    return;
  }
  let asked = ask_x(row, thread);
  let part = part_of(local.y);
  var base = turn_base(head, 0u, local.x);
  var next_words = load_words(base, 0u, part, 0u);
  var next_scales = load_scales(base, 0u, part, 0u);
  // Asked for before they can be multiplied.
  var absorbing = absorb_row(head, min(thread, params.rank - 1u));
  stage_x(row, thread, asked);
  stage_units(row, thread);
  for (var turn = 0u; turn < TURNS; turn++) {
    let first = base;
    let words = next_words;
    let scales = next_scales;
    if (turn + 1u < TURNS) {
      base = turn_base(head, turn + 1u, local.x);
      next_words = load_words(base, 0u, part, 0u);
      next_scales = load_scales(base, 0u, part, 0u);
    }
    contract_rounds(0u, first, 0u, part, words, scales, row, local.x, local.y);
    workgroupBarrier();
    if (thread < OUTS) {
      query[turn * OUTS + thread] = sum_segments(0u, 0u, thread);
    }
    workgroupBarrier();
  }

  let begin = (row * params.q_abs_units + head * (params.rank / 4u + params.rope_units)) * 4u;
  var n = thread;
  for (var left = steps(thread, params.rank, THREADS); left > 0u; left--) {
    out[begin + n] = absorbed(absorbing);
    n += THREADS;
    if (left > 1u) {
      absorbing = absorb_row(head, n);
    }
  }
  let position = row_info[row].x;
  if (position != INACTIVE && thread < params.rope_units / 2u) {
    rotate_query(row, head, thread, position);
  }
}
