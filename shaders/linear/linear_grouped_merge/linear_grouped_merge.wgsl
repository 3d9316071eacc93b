// MLA's up-projection of a row's attention: the chunks of each head merged, then out of the latent space by the head's matrix, for
// hardware adapters. attention_merge and linear_grouped in one, with their bits, for a lone row of few chunks.
//
//   x[h]       = merge of chunks c of (o, m, l)[h][c], o / l        c <= position / 256 < MOST_CHUNKS
//   out[h][n]  = sum_k W[h][n][k] x[h][k]
//
// partial_o:   [heads][partials][HEAD_UNITS * 4] f32, unnormalised
// partial_ml:  [heads][partials] (m, l) f32
// row_info:    [1] (position, slot)
// weight:      packed tiles of 32 output rows (pack.ts), 16-byte units; head h starts at tile h * (tiles of a head)
// scale:       f16 scales of q8 and q4
// out:         [out_stride] f32; output n of head h at h * out_group + n; nothing else is written
//
// Grid: x = OUTS outputs (contract.wgsl), y = head.

@group(0) @binding(0) var<storage, read> partial_o: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> scale: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  units: u32,
  tile_units: u32,
  out_stride: u32,
  out_offset: u32,
  out_group: u32,
  partials: u32,
}
@group(0) @binding(6) var<uniform> params: Params;

var<private> head: u32 = 0u;

fn first_head() -> u32 {
  return head;
}

fn staged_at(k4: u32) -> u32 {
  return k4;
}

fn opening(k4: u32) -> vec4<f32> {
  return vec4<f32>(1.0);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  head = group.y;
  group_outputs(group, local, thread);
}
