// A linear layer for few rows (generated tokens, logits): out = x W^T, for hardware adapters.
//
//   out[r][n] (+)= sum_s sum_{k in segment s} W[n][k] x[r][k] + bias[n]
//   swiglu: gate = W[n] x, up = W[32 tiles + n] x, out = gate / (1 + exp(-gate)) * up
//
// x:           [rows][x_stride4 * 4] f32; a rank's slice starts at element 4 * x_start4 of the contraction
// weight:      packed tiles of 32 output rows (pack.ts), 16-byte units; swiglu: tiles of gate rows, then tiles of up rows
// scale:       f16 scales of q8 and q4
// bias:        [out_features] f32 (swiglu: [gate padded to 32, then up])
// norm_weight: [in_features] f32, padded to a multiple of 4; only where x is normalised (x_normed.wgsl)
// out:         [rows][out_stride] f32, or [segment_count][rows][out_stride] with SEGMENTS_OUT; elements from out_features on
//              are never written
//
// Grid: x = tile of 32 outputs, y = tile of TILE_ROWS rows. A workgroup is 32 outputs x SLICES slices of the contraction:
// part = segment * SUBS + sub takes the units sub, sub + SUBS, ... of its segment. Parts are summed by
// (x + y) + (z + w) of a vec4, then the parts of a segment in order, then the segments in order.
//
// TILE_ROWS 1, 2, 4, 8: rows sharing one read of the weights; from the problem, lowered where workgroup memory is short;
// changes no bit. SUBS, SLICES (a divisor of PARTS, or 8): fixed by the model's number of segments. PARTS: segments * SUBS.
// MATRICES 2 for swiglu. ALIGNED: no segment boundary cuts a unit.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const TILE_ROWS: u32 = 1u; // variant
const MATRICES: u32 = 1u; // variant
const SLICES: u32 = 8u; // variant
const SUBS: u32 = 8u; // variant
const PARTS: u32 = 8u; // variant
const ALIGNED: bool = true; // variant

const THREADS: u32 = 32u * SLICES;
const SUMS: u32 = TILE_ROWS * MATRICES;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  model_in_features: u32,
  units: u32,
  first_unit: u32,
  unit_vec4s: u32,
  x_stride4: u32,
  x_start4: u32,
  out_stride: u32,
  out_offset: u32,
  segment_total: u32,
  segment_align: u32,
  segment_first: u32,
  segment_count: u32,
  eps: f32,
  out_scale: f32,
}
@group(0) @binding(6) var<uniform> params: Params;

/// [part][matrix * TILE_ROWS + row][lane]
var<workgroup> partials: array<f32, PARTS * SUMS * 32u>;

fn segment_sum(segment: u32, sum: u32, lane: u32) -> f32 {
  let first = (segment * SUBS * SUMS + sum) * 32u + lane;
  var total = partials[first];
  for (var sub = 1u; sub < SUBS; sub++) {
    total += partials[first + sub * SUMS * 32u];
  }
  return total;
}

fn sum_segments(sum: u32, lane: u32) -> f32 {
  var total = segment_sum(0u, sum, lane);
  for (var segment = 1u; segment < params.segment_count; segment++) {
    total += segment_sum(segment, sum, lane);
  }
  return total;
}

@compute @workgroup_size(32, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let lane = local.x;
  let first_row = group.y * TILE_ROWS;
  stage_x(first_row, thread);

  for (var part = local.y; part < PARTS; part += SLICES) {
    let segment = params.segment_first + part / SUBS;
    let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
    let end = segment_start(segment + 1u, params.model_in_features, params.segment_total, params.segment_align);
    let last_unit = (end + UNIT - 1u) / UNIT;
    // The initialiser is needed: without it some implementations keep the values of the last iteration.
    var sums = array<vec4<f32>, SUMS>();
    for (var unit = start / UNIT + part % SUBS; unit < last_unit; unit += SUBS) {
      for (var matrix = 0u; matrix < MATRICES; matrix++) {
        let tile = matrix * groups.x + group.x;
        let values = load_unit((tile * params.units + unit - params.first_unit) * 32u + lane);
        for (var r = 0u; r < TILE_ROWS; r++) {
          let at = matrix * TILE_ROWS + r;
          let activations = load_x_unit(first_row + r, unit * UNIT4);
          if (ALIGNED) {
            sums[at] = unit_fma(sums[at], values, activations);
          } else {
            sums[at] = unit_fma_within(sums[at], values, activations, unit * UNIT4, start / 4u, (end + 3u) / 4u);
          }
        }
      }
    }
    for (var at = 0u; at < SUMS; at++) {
      let sum = sums[at];
      partials[(part * SUMS + at) * 32u + lane] = (sum.x + sum.y) + (sum.z + sum.w);
    }
  }
  workgroupBarrier();

  let n = group.x * 32u + lane;
  if (n >= params.out_features) {
    return;
  }
  for (var r = local.y; r < TILE_ROWS; r += SLICES) {
    let row = first_row + r;
    if (row >= params.rows) {
      break;
    }
    if (SEGMENTS_OUT) {
      for (var segment = 0u; segment < params.segment_count; segment++) {
        write_segment(segment, row, n, segment_sum(segment, r, lane));
      }
    } else if (MATRICES == 2u) {
      write_swiglu(row, n, sum_segments(r, lane), sum_segments(TILE_ROWS + r, lane));
    } else {
      write_output(row, n, sum_segments(r, lane));
    }
  }
}
