// A linear layer for few rows behind a half of a layer whose output is normalised before it is added to the residual stream, for
// hardware adapters. rms_norm with its residual and linear in one, with their bits: every workgroup adds and normalises
// its rows (x_added.wgsl), and the first of a tile of rows writes what it added up.
//
//   x_out     = x + norm(added; added_weight), with SCALED times added_weight[in_features]
//   out[n] (+)= sum_s sum_{k in segment s} W[n][k] y[k] + bias[n]        y = norm(x_out; norm_weight) with NORMED, otherwise x_out
//   swiglu:     as linear's
//
// x, added:     [rows][x_stride4 * 4] f32, padded with zeros to a multiple of 4
// added_weight: [in_features, or one more] f32, padded likewise; norm_weight the same
// x_out:        as x
// weight, scale, bias, out, grid: as linear's. The entry point is outputs.wgsl's.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> added: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> added_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scale: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;
@group(0) @binding(8) var<storage, read_write> x_out: array<vec4<f32>>;

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
@group(0) @binding(9) var<uniform> params: Params;
