// The one row of a workgroup, RMS-normalised in workgroup memory (rms.wgsl), for hardware adapters; the counterpart of x_plain.wgsl.
// Joined after staged_row.wgsl.
// A thread asks for all that it needs at once and keeps it. There are no branches, behind which compilers would move what was
// asked for before them.

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

fn stage_x(row: u32, thread: u32, asked: Asked) {
  for (var i = 0u; i < OWN; i++) {
    stage(thread + i * THREADS, asked[i]);
  }
  let scale = staged_scale(thread);
  for (var i = 0u; i < OWN; i++) {
    stage(thread + i * THREADS, rms_apply(asked[i], scale, asked[OWN + i]));
  }
  workgroupBarrier();
}
