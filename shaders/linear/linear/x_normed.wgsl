// The one row of a workgroup, RMS-normalised in workgroup memory (rms.wgsl), for hardware adapters; the counterpart of x_plain.wgsl.
// A thread asks for all that it needs at once and keeps it. There are no branches, behind which compilers would move what was
// asked for before them.

/// vec4s of a padded row, a multiple of 256; the row must fit the workgroup memory.
const STAGED: u32 = 256u; // variant
/// Of a thread.
const OWN: u32 = (STAGED + THREADS - 1u) / THREADS;

var<workgroup> staged: array<vec4<f32>, STAGED>;
/// x, then norm_weight. Beyond the row x is zero.
alias Asked = array<vec4<f32>, 2u * OWN>;

fn ask_x(row: u32, thread: u32) -> Asked {
  let vec4s = (params.model_in_features + 3u) / 4u;
  var asked = Asked();
  for (var i = 0u; i < OWN; i++) {
    let k4 = thread + i * THREADS;
    let at = min(k4, vec4s - 1u);
    asked[i] = select(vec4<f32>(), x[row * params.x_stride4 + at], vec4<bool>(k4 < vec4s));
    asked[OWN + i] = norm_weight[at];
  }
  return asked;
}

fn stage(k4: u32, value: vec4<f32>) {
  if (STAGED % THREADS == 0u || k4 < STAGED) {
    staged[k4] = value;
  }
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  for (var i = 0u; i < OWN; i++) {
    stage(thread + i * THREADS, asked[i]);
  }
  workgroupBarrier();
  var partial = 0.0;
  for (var i = 0u; i < STAGED / RMS_PARTIALS; i++) {
    partial = rms_accumulate(partial, staged[thread % RMS_PARTIALS + i * RMS_PARTIALS]);
  }
  rms_partials[thread] = partial;
  workgroupBarrier();
  let scale = rms_scale(f32(params.model_in_features), params.eps);
  for (var i = 0u; i < OWN; i++) {
    stage(thread + i * THREADS, rms_apply(asked[i], scale, asked[OWN + i]));
  }
  workgroupBarrier();
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[k4];
}
