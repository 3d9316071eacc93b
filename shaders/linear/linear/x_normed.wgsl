// The rows of a workgroup's tile, RMS-normalised in workgroup memory (rms.wgsl), for hardware adapters; the counterpart of x_plain.wgsl.
// Joined after staged_row.wgsl.
// A thread asks for all that it needs at once and keeps it. There are no branches, behind which compilers would move what was
// asked for before them.

/// x of each row, then norm_weight. Beyond the row x is zero.
alias Asked = array<vec4<f32>, (TILE_ROWS + 1u) * OWN>;

fn ask_x(row: u32, thread: u32) -> Asked {
  let vec4s = (params.model_in_features + 3u) / 4u;
  var asked = Asked();
  for (var i = 0u; i < OWN; i++) {
    let k4 = thread + i * THREADS;
    let at = min(k4, vec4s - 1u);
    for (var r = 0u; r < TILE_ROWS; r++) {
      asked[r * OWN + i] = select(vec4<f32>(), x[(row + r) * params.x_stride4 + at], vec4<bool>(k4 < vec4s));
    }
    asked[TILE_ROWS * OWN + i] = norm_weight[at];
  }
  return asked;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  for (var i = 0u; i < TILE_ROWS * OWN; i++) {
    stage(i / OWN, thread + i % OWN * THREADS, asked[i]);
  }
  let scales = staged_scales(thread);
  for (var i = 0u; i < TILE_ROWS * OWN; i++) {
    let normed = rms_apply(asked[i], scales[i / OWN], asked[TILE_ROWS * OWN + i % OWN]);
    stage(i / OWN, thread + i % OWN * THREADS, normed);
  }
  workgroupBarrier();
}
