// The one row of a workgroup on a hardware adapter, in its memory: what x_normed.wgsl and linear_add_norm/x_added.wgsl share.

/// vec4s of a padded row, a multiple of 256; the row must fit the workgroup memory.
const STAGED: u32 = 256u; // variant
/// Of a thread.
const OWN: u32 = (STAGED + THREADS - 1u) / THREADS;

var<workgroup> staged: array<vec4<f32>, STAGED>;

fn stage(k4: u32, value: vec4<f32>) {
  if (STAGED % THREADS == 0u || k4 < STAGED) {
    staged[k4] = value;
  }
}

/// rms_scale of what is staged: the threads come together before, and when they have read it.
fn staged_scale(thread: u32) -> f32 {
  workgroupBarrier();
  if (thread < RMS_PARTIALS) {
    var partial = 0.0;
    for (var i = 0u; i < STAGED / RMS_PARTIALS; i++) {
      partial = rms_accumulate(partial, staged[thread + i * RMS_PARTIALS]);
    }
    rms_partials[thread] = partial;
  }
  workgroupBarrier();
  return rms_scale(f32(params.model_in_features), params.eps);
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[k4];
}
