// Layer normalisation of rows.
//
//   c[r][i]   = x[r][i] - mean_i(x[r][i])
//   y[r][i]   = (c[r][i] * 1 / sqrt(mean_i(c[r][i]^2) + eps)) * weight[i] + bias[i]
//   out[r][i] = y[r][i], or out[r][i] + y[r][i] (where RESIDUAL)
// where OF_SUM: with x[r][i] + out[r][i] in place of x[r][i]
//
// x:       [rows][stride] f32, elements from width to the next multiple of 4 are zero
// weight:  [width, padded to a multiple of 4] f32
// bias:    the same; where BIAS
// out:     [rows][stride] f32; elements from width to the next multiple of 4 get zero (RESIDUAL: stay), those beyond are never written
//
// Grid: x = row; one workgroup per row. Both sums are in the order of rms.wgsl, with partials of elements, then of squares.
// RESIDUAL, OF_SUM, BIAS: from the problem. THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; a row of equal elements gives the bias.

const RESIDUAL: bool = false; // variant
const OF_SUM: bool = false; // variant
const BIAS: bool = false; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

struct Params {
  width: u32,
  stride: u32,
  eps: f32,
}
@group(0) @binding(4) var<uniform> params: Params;

/// Before out is written.
fn given(at: u32) -> vec4<f32> {
  if (OF_SUM) {
    return x[at] + out[at];
  }
  return x[at];
}

/// Element k of a row less its mean; the padding behind the row stays zero.
fn centred(row: u32, k: u32, mean: f32) -> vec4<f32> {
  let inside = vec4<u32>(4u * k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.width);
  return select(vec4<f32>(), given(row + k) - mean, inside);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.x * (params.stride / 4u);
  let vec4s = (params.width + 3u) / 4u;
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own >= 1u; own--) {
    var partial = 0.0;
    var k = j;
    for (var left = steps(j, vec4s, RMS_PARTIALS); left >= 1u; left--) {
      let v = given(row + k);
      partial = (((partial + v.x) + v.y) + v.z) + v.w;
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let mean = rms_total() / f32(params.width);
  workgroupBarrier();
  j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own >= 1u; own--) {
    var partial = 0.0;
    var k = j;
    for (var left = steps(j, vec4s, RMS_PARTIALS); left >= 1u; left--) {
      partial = rms_accumulate(partial, centred(row, k, mean));
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.width), params.eps);
  var k = thread;
  for (var left = steps(thread, vec4s, THREADS); left >= 1u; left--) {
    var y = rms_apply(centred(row, k, mean), scale, weight[k]);
    if (BIAS) {
      y += bias[k];
    }
    if (RESIDUAL) {
      y += out[row + k];
    }
    out[row + k] = y;
    k += THREADS;
  }
}
