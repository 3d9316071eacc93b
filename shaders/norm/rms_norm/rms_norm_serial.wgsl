// RMS normalisation of rows, for software adapters.
//
//   y[r][i] = (x[r][i] * 1 / sqrt(mean_i(x[r][i]^2) + eps)) * weight[i]
//   out[r][i] = y[r][i], or out[r][i] + y[r][i] (where RESIDUAL), or base[r][i] + y[r][i] (with APART besides)
//   SCALED, with RESIDUAL: out is that times weight[width]
//
// x:       [rows][stride] f32, elements from width to the next multiple of 4 are zero
// weight:  [width, or width + 1, padded to a multiple of 4] f32
// base:    as x
// out:     [rows][stride] f32; elements from width to the next multiple of 4 get zero (RESIDUAL: stay), those beyond are never written
//
// Grid: x = row, y = piece; a row has PIECES, each as a row of its own. One workgroup per piece. The order of the sum is
// rms.wgsl's: the same bits as a norm fused in another kernel.
// RESIDUAL, APART, SCALED, PIECES: from the problem. THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; a row of zeros gives zeros.

const RESIDUAL: bool = false; // variant
const APART: bool = false; // variant
const SCALED: bool = false; // variant
const PIECES: u32 = 1u; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> base: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

struct Params {
  width: u32,
  stride: u32,
  eps: f32,
}
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.x * PIECES + group.y) * (params.stride / 4u);
  let vec4s = (params.width + 3u) / 4u;
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own > 0u; own--) {
    var partial = 0.0;
    var k = j;
    for (var left = steps(j, vec4s, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, x[row + k]);
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.width), params.eps);
  var k = thread;
  for (var left = steps(thread, vec4s, THREADS); left > 0u; left--) {
    if (RESIDUAL) {
      var sum = out[row + k];
      if (APART) {
        sum = base[row + k];
      }
      sum = fma(x[row + k] * scale, weight[k], sum);
      if (SCALED) {
        sum *= weight[params.width / 4u][params.width % 4u];
      }
      out[row + k] = sum;
    } else {
      out[row + k] = rms_apply(x[row + k], scale, weight[k]);
    }
    k += THREADS;
  }
}
