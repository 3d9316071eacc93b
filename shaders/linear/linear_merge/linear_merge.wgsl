// A row's attention merged and projected: out = merge(partials) W^T, for hardware adapters. attention_merge, output_gate and linear in
// one, with their bits, for a lone row of few chunks: every workgroup merges all heads (x_merged.wgsl).
//
//   x[h]          = merge of chunks c of (o, m, l)[h][c], o / l        of c <= position / 256, at most MOST_CHUNKS of the window
//   x             = x * sigmoid(gate)                                  with GATED
//   out[n]      (+)= sum_s sum_{k in segment s} W[n][k] x[k] + bias[n]
//
// partial_o:   [heads][partials][HEAD_UNITS * 4] f32, unnormalised
// partial_ml:  [heads][partials] (m, l) f32
// row_info:    [1] (position, slot)
// weight:      packed tiles of 32 output rows (pack.ts), 16-byte units
// scale:       f16 scales of q8 and q4
// bias:        [out_features] f32
// gate:        f32, from vec4 gate_start4 on; only where x is gated
// out:         [out_stride] f32, or [segment_count][out_stride] with SEGMENTS_OUT; elements from out_features on are never written
//
// Grid: x = OUTS outputs. The entry point is outputs.wgsl's.

@group(0) @binding(0) var<storage, read> partial_o: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scale: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

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
  partials: u32,
  gate_start4: u32,
}
@group(0) @binding(8) var<uniform> params: Params;

const GATED: bool = false; // variant

fn first_head() -> u32 {
  return 0u;
}

fn opening(k4: u32) -> vec4<f32> {
  if (!GATED) {
    return vec4<f32>(1.0);
  }
  let g = gate[params.gate_start4 + k4];
  return vec4<f32>(sigmoid(g.x), sigmoid(g.y), sigmoid(g.z), sigmoid(g.w));
}

/// What a unit that the slice cuts has outside of it isn't used.
fn staged_at(k4: u32) -> u32 {
  return k4 - params.x_start4;
}
