// Depthwise causal convolution over the last TAPS inputs of each channel, which a sequence's state keeps from step to step.
//
//   y[t][c] = bias[c] + sum_{j < TAPS} weight[c][j] * u[t - TAPS + 1 + j][c], u = 0 before a sequence's first token
//   GATED:  u = x[t][c] * x[t][2 width + c], out[t][c] = x[t][width + c] * y[t][c]      (LFM2: B, C and x side by side)
//   else:   u = x[t][c],                     out[t][c] = silu(y[t][c])                  (gated DeltaNet, Mamba-2)
//
// x:        [rows][x_stride] f32; weight: [width][TAPS] f32; bias: [width] f32, with BIAS only
// row_info: [rows] (position, slot); places: [slots] where a slot's state is
// state:    [places][TAPS - 1][width] f32: inputs u of the last TAPS - 1 tokens, oldest first
// out:      [rows][out_stride] f32; elements at and beyond width, and rows that are inactive, are never written
//
// Grid: x = ceil(width / THREADS), y = row where a run may begin (state_rows.wgsl). ONE_RUN: all rows are one run from row 0, and
// y = `block` rows of it: a row needs none but the TAPS - 1 inputs before it. The first rows' workgroup writes the state.
// A channel is summed oldest tap first, behind its bias, each by fma: the same bits however rows are cut into steps.
// TAPS: 2..8, GATED, BIAS, ONE_RUN: from the problem. THREADS, BLOCK (1, or 8 where a thread asks for several rows at once): chosen by
// the plan; change no bit.
// Empty input: rows = 0 dispatches nothing.

const TAPS: u32 = 4u; // variant
const GATED: bool = false; // variant
const BIAS: bool = false; // variant
const ONE_RUN: bool = false; // variant
const BLOCK: u32 = 1u; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> places: array<u32>;
@group(0) @binding(5) var<storage, read_write> state: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  width: u32,
  x_stride: u32,
  out_stride: u32,
  block: u32,
}
@group(0) @binding(7) var<uniform> params: Params;

fn input(row: u32, channel: u32) -> f32 {
  let at = row * params.x_stride + channel;
  var u = x[at];
  if (GATED) {
    u *= x[at + 2u * params.width];
  }
  return u;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let channel = group.x * THREADS + thread;
  // The run's first row, and the workgroup's, counted from it.
  let begin = select(group.y, 0u, ONE_RUN);
  let first = select(0u, group.y * params.block, ONE_RUN);
  var count: u32;
  if (ONE_RUN) {
    count = only_run_length(params.rows);
  } else {
    count = run_length(begin, params.rows);
  }
  if (channel >= params.width || first >= count) {
    return;
  }
  let end = min(first + params.block, count);
  let info = row_info[begin];
  let kept = places[info.y] * (TAPS - 1u) * params.width + channel;
  var taps: array<f32, TAPS>;
  var inputs: array<f32, TAPS - 1u + BLOCK>;
  var first_term = 0.0;
  if (BIAS) {
    first_term = bias[channel];
  }
  for (var j = 0u; j < TAPS; j++) {
    taps[j] = weight[channel * TAPS + j];
  }
  for (var j = 0u; j < TAPS - 1u; j++) {
    if (first > 0u) {
      inputs[j] = input(first + j - (TAPS - 1u), channel);
    } else {
      inputs[j] = select(state[kept + j * params.width], 0.0, info.x == 0u);
    }
  }
  var row = begin + first;
  for (var left = (end - first + BLOCK - 1u) / BLOCK; left > 0u; left--) {
    for (var i = 0u; i < BLOCK; i++) {
      inputs[TAPS - 1u + i] = input(min(row + i, begin + end - 1u), channel);
    }
    for (var i = 0u; i < BLOCK; i++) {
      var y = first_term;
      for (var j = 0u; j < TAPS; j++) {
        y = fma(taps[j], inputs[i + j], y);
      }
      if (BLOCK > 1u && row + i >= begin + end) {
        break;
      }
      let to = (row + i) * params.out_stride + channel;
      if (GATED) {
        out[to] = x[(row + i) * params.x_stride + params.width + channel] * y;
      } else {
        out[to] = silu(y);
      }
    }
    for (var j = 0u; j < TAPS - 1u; j++) {
      inputs[j] = inputs[BLOCK + j];
    }
    row += BLOCK;
  }
  if (first > 0u) {
    return;
  }
  for (var j = 0u; j < TAPS - 1u; j++) {
    var kept_input = inputs[j];
    if (BLOCK > 1u) {
      if (count + j >= TAPS - 1u) {
        kept_input = input(count + j - (TAPS - 1u), channel);
      } else {
        kept_input = select(state[kept + (count + j) * params.width], 0.0, info.x == 0u);
      }
    }
    state[kept + j * params.width] = kept_input;
  }
}
