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
// Grid: x = OUTS outputs (contract.wgsl, which also says in what order is summed), y = tile of TILE_ROWS rows. The entry point
// is outputs.wgsl's.
//
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

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
