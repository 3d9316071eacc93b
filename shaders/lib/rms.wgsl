// RMS normalisation of one row by one workgroup, in one fixed order, so that every kernel that uses it gives the same bits
// whatever its number of threads.
//
//   sum of squares = fixed-order sum of 64 partials; partial j takes the row's vec4s j, j + 64, j + 128, ... in ascending order
//   scale          = 1 / sqrt(sum of squares / width + eps)
//   normalised     = (x * scale) * weight
//
// Zero padding after the row changes no bit, so a row may be read to its padded end.
// Use, with any number of threads a workgroup (THREADS) and one barrier:
//
//   for each j of thread, thread + THREADS, ... < RMS_PARTIALS {
//     var partial = 0.0;
//     for each k4 of j, j + RMS_PARTIALS, ... < row_vec4s { partial = rms_accumulate(partial, x[row_start + k4]); }
//     rms_partials[j] = partial;
//   }
//   workgroupBarrier();
//   let scale = rms_scale(f32(params.width), params.eps);
//   ... rms_apply(x[row_start + k4], scale, weight[k4]) ...
//
// Pass width and eps from `params`, not from constants: a compiler may fold a division by a constant into other bits.

const RMS_PARTIALS: u32 = 64u;

var<workgroup> rms_partials: array<f32, RMS_PARTIALS>;

/// partial + v.x^2 + v.y^2 + v.z^2 + v.w^2, each term by fma, in component order.
fn rms_accumulate(partial: f32, v: vec4<f32>) -> f32 {
  return fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, partial))));
}

/// The sum of the 64 partials; call after the barrier, in every thread that needs it.
/// Four chains (j mod 4), each in ascending order, then (0 + 1) + (2 + 3).
fn rms_total() -> f32 {
  var chains = vec4<f32>(rms_partials[0], rms_partials[1], rms_partials[2], rms_partials[3]);
  var j = 4u;
  for (var left = RMS_PARTIALS / 4u - 1u; left >= 1u; left--) {
    chains += vec4<f32>(rms_partials[j], rms_partials[j + 1u], rms_partials[j + 2u], rms_partials[j + 3u]);
    j += 4u;
  }
  return (chains.x + chains.y) + (chains.z + chains.w);
}

/// 1 / sqrt(mean of squares + eps), likewise.
fn rms_scale(width: f32, eps: f32) -> f32 {
  return inverseSqrt(rms_total() / width + eps);
}

fn rms_apply(x: vec4<f32>, scale: f32, weight: vec4<f32>) -> vec4<f32> {
  return (x * scale) * weight;
}
