// Depthwise causal convolution over the last TAPS inputs of each channel, which a sequence's state keeps from step to step.
//
//   y[t][c] = sum_{j < TAPS} weight[c][j] * u[t - TAPS + 1 + j][c], u = 0 before a sequence's first token
//   GATED:  u = x[t][c] * x[t][2 width + c], out[t][c] = x[t][width + c] * y[t][c]      (LFM2: B, C and x side by side)
//   else:   u = x[t][c],                     out[t][c] = silu(y[t][c])                  (gated DeltaNet: q, k and v)
//
// x:        [rows][x_stride] f32; weight: [width][TAPS] f32
// row_info: [rows] (position, slot); places: [slots] where a slot's state is
// state:    [places][TAPS - 1][width] f32: inputs u of the last TAPS - 1 tokens, oldest first
// out:      [rows][out_stride] f32; elements at and beyond width, and rows that are inactive, are never written
//
// Grid: x = ceil(width / THREADS), y = row where a run may begin (state_rows.wgsl): prompt rows are one run from row 0.
// A channel is summed oldest tap first, each by fma: the same bits however rows are cut into steps.
// TAPS: 2..8, GATED: from the problem. THREADS: chosen by the plan; changes no bit.
// Empty input: rows = 0 dispatches nothing.

const TAPS: u32 = 4u; // variant
const GATED: bool = false; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> places: array<u32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  width: u32,
  x_stride: u32,
  out_stride: u32,
}
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let channel = group.x * THREADS + thread;
  let count = run_length(group.y, params.rows);
  if (channel >= params.width || count == 0u) {
    return;
  }
  let info = row_info[group.y];
  let kept = places[info.y] * (TAPS - 1u) * params.width + channel;
  var taps: array<f32, TAPS>;
  var past: array<f32, TAPS>;
  for (var j = 0u; j < TAPS; j++) {
    taps[j] = weight[channel * TAPS + j];
  }
  for (var j = 0u; j < TAPS - 1u; j++) {
    let before = state[kept + j * params.width];
    past[j] = select(before, 0.0, info.x == 0u);
  }
  var row = group.y;
  for (var left = count; left > 0u; left--) {
    let at = row * params.x_stride + channel;
    var input = x[at];
    if (GATED) {
      input *= x[at + 2u * params.width];
    }
    past[TAPS - 1u] = input;
    var y = 0.0;
    for (var j = 0u; j < TAPS; j++) {
      y = fma(taps[j], past[j], y);
    }
    for (var j = 0u; j < TAPS - 1u; j++) {
      past[j] = past[j + 1u];
    }
    if (GATED) {
      out[row * params.out_stride + channel] = x[at + params.width] * y;
    } else {
      out[row * params.out_stride + channel] = silu(y);
    }
    row += 1u;
  }
  for (var j = 0u; j < TAPS - 1u; j++) {
    state[kept + j * params.width] = past[j];
  }
}
