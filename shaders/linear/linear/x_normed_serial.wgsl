// x_normed.wgsl for software adapters, with any number of threads.

/// vec4s of a padded row; the row must fit the workgroup memory.
const STAGED: u32 = 8u; // variant

var<workgroup> staged: array<vec4<f32>, STAGED>;

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  let start = row * params.x_stride4;
  let vec4s = (params.model_in_features + 3u) / 4u;
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own > 0u; own--) {
    var partial = 0.0;
    var k4 = j;
    for (var left = steps(j, vec4s, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, x[start + k4]);
      k4 += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.model_in_features), params.eps);
  var k4 = thread;
  for (var left = steps(thread, STAGED, THREADS); left > 0u; left--) {
    var value = vec4<f32>();
    if (k4 < vec4s) {
      value = rms_apply(x[start + k4], scale, norm_weight[k4]);
    }
    staged[k4] = value;
    k4 += THREADS;
  }
  workgroupBarrier();
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[k4];
}
