// The one row of a workgroup, RMS-normalised in workgroup memory (rms.wgsl); the counterpart of x_plain.wgsl.

/// vec4s of a padded row; the row must fit the workgroup memory.
const STAGED: u32 = 8u; // variant

var<workgroup> staged: array<vec4<f32>, STAGED>;

fn stage_x(row: u32, thread: u32) {
  let start = row * params.x_stride4;
  let vec4s = (params.model_in_features + 3u) / 4u;
  for (var j = thread; j < RMS_PARTIALS; j += THREADS) {
    var partial = 0.0;
    for (var k4 = j; k4 < vec4s; k4 += RMS_PARTIALS) {
      partial = rms_accumulate(partial, x[start + k4]);
    }
    rms_partials[j] = partial;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.model_in_features), params.eps);
  for (var k4 = thread; k4 < STAGED; k4 += THREADS) {
    var value = vec4<f32>();
    if (k4 < vec4s) {
      value = rms_apply(x[start + k4], scale, norm_weight[k4]);
    }
    staged[k4] = value;
  }
  workgroupBarrier();
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[k4];
}
