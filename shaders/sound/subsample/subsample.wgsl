// A convolution of 3 x 3 in steps of two lines and two columns, normalised over its channels (LayerNorm), and a ReLU.
//
//   y[t][f][c] = sum_{dt, df < 3} sum_i weight[c][i][dt][df] * x[2 t + dt - 1][2 f + df - 1][i], x = 0 outside
//   out[t][f][c] = max(0, (y[t][f][c] - mean_c) / sqrt(variance_c + eps) * norm[c])
//
// x:      [lines][2 * columns][INPUTS] f32; counts[counts_at] of the lines are there, what stands beyond isn't read
// weight: [CHANNELS][INPUTS][3][3] f32; norm: [CHANNELS] f32
// out:    [rows][columns][CHANNELS] f32
//
// Grid: x = column, y = line of out. One workgroup for all channels.
// INPUTS, CHANNELS: from the problem. THREADS: 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing.

const INPUTS: u32 = 1u; // variant
const CHANNELS: u32 = 32u; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> norm: array<f32>;
@group(0) @binding(3) var<storage, read> counts: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

struct Params {
  columns: u32,
  counts_at: u32,
  eps: f32,
}
@group(0) @binding(5) var<uniform> params: Params;

const PER_THREAD: u32 = (CHANNELS + THREADS - 1u) / THREADS;

var<workgroup> values: array<f32, CHANNELS>;

/// `place` is (line, column) of the channel's own.
fn convolve(place: vec2<u32>, channel: u32) -> f32 {
  let lines = counts[params.counts_at];
  var sum = 0.0;
  for (var tap = 0u; tap < 9u; tap++) {
    // Counted from 1, as 0 is before the first.
    let line = 2u * place.x + tap / 3u;
    let column = 2u * place.y + tap % 3u;
    if (line >= 1u && line <= lines && column >= 1u) {
      let cell = ((line - 1u) * 2u * params.columns + column - 1u) * INPUTS;
      for (var i = 0u; i < INPUTS; i++) {
        sum = fma(weight[(channel * INPUTS + i) * 9u + tap], x[cell + i], sum);
      }
    }
  }
  return sum;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  for (var i = 0u; i < PER_THREAD; i++) {
    let channel = thread + i * THREADS;
    if (channel < CHANNELS) {
      values[channel] = convolve(vec2<u32>(group.y, group.x), channel);
    }
  }
  workgroupBarrier();
  var mean = 0.0;
  for (var c = 0u; c < CHANNELS; c++) {
    mean += values[c];
  }
  mean /= f32(CHANNELS);
  var squares = 0.0;
  for (var c = 0u; c < CHANNELS; c++) {
    let off = values[c] - mean;
    squares = fma(off, off, squares);
  }
  let scale = inverseSqrt(squares / f32(CHANNELS) + params.eps);
  let to = (group.y * params.columns + group.x) * CHANNELS;
  for (var i = 0u; i < PER_THREAD; i++) {
    let channel = thread + i * THREADS;
    if (channel < CHANNELS) {
      out[to + channel] = max(0.0, (values[channel] - mean) * scale * norm[channel]);
    }
  }
}
