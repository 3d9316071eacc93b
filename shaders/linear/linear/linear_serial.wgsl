// A linear layer for few rows (generated tokens, logits): out = x W^T, for software adapters, which pay dearly for barriers.
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
// Grid: x = tile of 32 outputs, y = tile of TILE_ROWS rows. One invocation computes one output of TILE_ROWS rows, the units of
// a segment in order, (x + y) + (z + w) of their vec4, then the segments in order.
//
// TILE_ROWS 1, 2, 4, 8: rows sharing one read of the weights; from the problem; changes no bit. MATRICES 2 for swiglu.
// ALIGNED: no segment boundary cuts a unit.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const TILE_ROWS: u32 = 1u; // variant
const MATRICES: u32 = 1u; // variant
const ALIGNED: bool = true; // variant

const THREADS: u32 = 32u;
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
  x_stride4: u32,
  x_start4: u32,
  out_stride: u32,
  out_offset: u32,
  segment_total: u32,
  segment_align: u32,
  segment_first: u32,
  segment_count: u32,
  eps: f32,
}
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let first_row = group.y * TILE_ROWS;
  let n = group.x * 32u + lane;
  stage_x(first_row, lane);

  var totals = array<f32, SUMS>();
  for (var s = 0u; s < params.segment_count; s++) {
    let segment = params.segment_first + s;
    let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
    let end = segment_start(segment + 1u, params.model_in_features, params.segment_total, params.segment_align);
    let last_unit = (end + UNIT - 1u) / UNIT;
    // The initialiser is needed: without it some implementations keep the values of the last iteration.
    var sums = array<vec4<f32>, SUMS>();
    for (var unit = start / UNIT; unit < last_unit; unit++) {
      for (var matrix = 0u; matrix < MATRICES; matrix++) {
        let tile = matrix * groups.x + group.x;
        let values = load_unit((tile * params.units + unit - params.first_unit) * 32u + lane);
        for (var r = 0u; r < TILE_ROWS; r++) {
          let at = matrix * TILE_ROWS + r;
          if (ALIGNED) {
            sums[at] = unit_fma(sums[at], values, first_row + r, unit * UNIT4);
          } else {
            sums[at] = unit_fma_within(sums[at], values, first_row + r, unit * UNIT4, start / 4u, (end + 3u) / 4u);
          }
        }
      }
    }
    for (var at = 0u; at < SUMS; at++) {
      let sum = (sums[at].x + sums[at].y) + (sums[at].z + sums[at].w);
      let row = first_row + at;
      if (SEGMENTS_OUT) {
        if (row < params.rows && n < params.out_features) {
          write_segment(s, row, n, sum);
        }
      } else if (s == 0u) {
        totals[at] = sum;
      } else {
        totals[at] += sum;
      }
    }
  }

  if (SEGMENTS_OUT || n >= params.out_features) {
    return;
  }
  for (var r = 0u; r < TILE_ROWS; r++) {
    let row = first_row + r;
    if (row >= params.rows) {
      break;
    }
    if (MATRICES == 2u) {
      write_swiglu(row, n, totals[r], totals[SUMS - TILE_ROWS + r]);
    } else {
      write_output(row, n, totals[r]);
    }
  }
}
