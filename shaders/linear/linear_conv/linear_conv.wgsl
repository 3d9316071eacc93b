// A row projected into a gated short convolution, for hardware adapters: linear and causal_conv (GATED) in one, with their bits,
// for a lone row.
//
//   B, C, u = W norm(x) in thirds;  out[n] = C[n] * sum_{j < TAPS} taps[n][j] * (B u)[t - TAPS + 1 + j][n]
//
// x:           [1][x_stride4 * 4] f32
// weight:      packed tiles of 32 output rows (pack.ts), 16-byte units: out_features rows of B, of C and of u
// scale:       f16 scales of q8 and q4
// norm_weight: [in_features] f32, padded to a multiple of 4 (linear/x_normed.wgsl)
// taps:        [out_features][TAPS] f32; row_info: [1] (position, slot); places: [slots] where a slot's state is
// state:       as causal_conv's, width out_features
// out:         [out_features] f32; not written where the row is inactive
//
// Grid: x = OUTS channels (contract.wgsl, which also says in what order is summed).
// TAPS: 2..8, from the problem.

const TAPS: u32 = 3u; // variant
const INACTIVE: u32 = 0xffffffffu;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> taps: array<f32>;
@group(0) @binding(5) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read> places: array<u32>;
@group(0) @binding(7) var<storage, read_write> state: array<f32>;
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

struct Params {
  out_features: u32,
  model_in_features: u32,
  units: u32,
  tile_units: u32,
  x_stride4: u32,
  eps: f32,
}
@group(0) @binding(9) var<uniform> params: Params;

fn part_of(part: u32) -> Part {
  return uncut_part(part, params.units);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let first_out = group.x * OUTS;
  let base = first_out / 32u * params.tile_units * 32u + first_out % 32u + local.x;
  let width = params.out_features;
  let n = first_out + thread;
  let info = row_info[0];
  contract(base, width / 32u * params.tile_units * 32u, 0u, local.x, local.y);
  if (thread >= OUTS || n >= width || info.x == INACTIVE) {
    return;
  }
  let kept = places[info.y] * (TAPS - 1u) * width + n;
  var past: array<f32, TAPS>;
  for (var j = 0u; j < TAPS - 1u; j++) {
    past[j] = select(state[kept + j * width], 0.0, info.x == 0u);
  }
  past[TAPS - 1u] = sum_segments(0u, 0u, thread) * sum_segments(2u, 0u, thread);
  var y = 0.0;
  for (var j = 0u; j < TAPS; j++) {
    y = fma(taps[n * TAPS + j], past[j], y);
  }
  for (var j = 0u; j < TAPS - 1u; j++) {
    state[kept + j * width] = past[j + 1u];
  }
  out[n] = sum_segments(1u, 0u, thread) * y;
}
