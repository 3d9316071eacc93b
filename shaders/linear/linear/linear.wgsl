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
// Grid: x = OUTS outputs (contract.wgsl, which also says in what order is summed), y = tile of TILE_ROWS rows.
//
// SEGMENT_TOTAL: the model's number of segments; fixes the order of the sums.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const SEGMENT_TOTAL: u32 = 1u; // variant

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

/// Part segment * SUBS + sub of this rank's segments.
fn part_of(part: u32) -> Part {
  var start = 0u;
  var end = params.model_in_features;
  if (SEGMENT_TOTAL > 1u) {
    let segment = params.segment_first + part / SUBS;
    start = segment_start(segment, params.model_in_features, SEGMENT_TOTAL, params.segment_align);
    end = segment_start(segment + 1u, params.model_in_features, SEGMENT_TOTAL, params.segment_align);
  }
  let first = start / UNIT + part % SUBS;
  let count = steps(first, (end + UNIT - 1u) / UNIT, SUBS);
  // An empty part names a unit that exists: it is asked for all the same.
  return Part(select(first, params.first_unit, count == 0u), count, start / 4u, (end + 3u) / 4u);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let first_out = group.x * OUTS;
  let first_row = group.y * TILE_ROWS;
  let base = ((first_out / 32u) * params.units - params.first_unit) * 32u + first_out % 32u + local.x;
  let up_step = (params.out_features + 31u) / 32u * params.units * 32u;
  contract(base, up_step, first_row, local.x, local.y);

  for (var i = 0u; i < WRITES; i++) {
    let index = i * THREADS + thread;
    let r = index / OUTS;
    let row = first_row + r;
    let out_lane = index % OUTS;
    let n = first_out + out_lane;
    if (r < TILE_ROWS && row < params.rows && n < params.out_features) {
      if (SEGMENTS_OUT) {
        var segment = 0u;
        for (var left = loop_count(PARTS / SUBS); left > 0u; left--) {
          write_segment(segment, row, n, segment_sum(segment, 0u, r, out_lane));
          segment++;
        }
      } else if (MATRICES == 2u) {
        write_swiglu(row, n, sum_segments(0u, r, out_lane), sum_segments(1u, r, out_lane));
      } else {
        write_output(row, n, sum_segments(0u, r, out_lane));
      }
    }
  }
}
