// A conformer's convolution: gated inputs, a depthwise causal convolution over rows, its RMS norm and SiLU.
//
//   u[t][c] = x[t][c] * sigmoid(x[t][width + c]), u = 0 before row 0
//   v[t][c] = sum_{j < TAPS} weight[c][j] * u[t - TAPS + 1 + j][c]
//   out[t][c] = silu(v[t][c] * 1 / sqrt(mean_c(v[t][c]^2) + eps) * norm[c])
//
// x:      [rows][x_stride] f32: twice the width; weight: [width][TAPS] f32; norm: [width] f32
// out:    [rows][out_stride] f32; elements at and beyond width are never written
//
// Grid: x = row; one workgroup per row, of one sequence from row 0 on. Joined after silu.wgsl, steps.wgsl and rms.wgsl; the sum has
// 64 partials of elements j, j + 64, ...
// TAPS: 2..8, from the problem. THREADS: 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; rows of zeros give zeros.

const TAPS: u32 = 5u; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> norm: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

struct Params {
  width: u32,
  x_stride: u32,
  out_stride: u32,
  eps: f32,
}
@group(0) @binding(4) var<uniform> params: Params;

fn convolve(row: u32, channel: u32) -> f32 {
  var sum = 0.0;
  for (var j = 0u; j < TAPS; j++) {
    if (row + j + 1u >= TAPS) {
      let at = (row + j + 1u - TAPS) * params.x_stride + channel;
      sum = fma(weight[channel * TAPS + j], x[at] * sigmoid(x[at + params.width]), sum);
    }
  }
  return sum;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let to = group.x * params.out_stride;
  for (var turn = 0u; turn < RMS_PARTIALS / THREADS; turn++) {
    let j = turn * THREADS + thread;
    var partial = 0.0;
    var c = j;
    for (var left = steps(j, params.width, RMS_PARTIALS); left > 0u; left--) {
      let value = convolve(group.x, c);
      out[to + c] = value;
      partial = fma(value, value, partial);
      c += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.width), params.eps);
  for (var turn = 0u; turn < RMS_PARTIALS / THREADS; turn++) {
    let j = turn * THREADS + thread;
    var c = j;
    for (var left = steps(j, params.width, RMS_PARTIALS); left > 0u; left--) {
      out[to + c] = silu(out[to + c] * scale * norm[c]);
      c += RMS_PARTIALS;
    }
  }
}
