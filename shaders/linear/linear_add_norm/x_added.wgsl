// A sum is added to the one row of a workgroup, normalised by itself, with the bits of rms_norm; with NORMED the new row is normalised,
// too. The counterpart of linear/x_normed.wgsl, joined after linear/staged_row.wgsl. A thread asks for all that it needs at once and
// keeps it. The first workgroup writes the new row.

const NORMED: bool = true; // variant
const SCALED: bool = false; // variant

/// x, added, added_weight and norm_weight. Beyond the row the first two are zero.
alias Asked = array<vec4<f32>, 4u * OWN>;

fn ask_x(row: u32, thread: u32) -> Asked {
  let vec4s = (params.model_in_features + 3u) / 4u;
  var asked = Asked();
  for (var i = 0u; i < OWN; i++) {
    let k4 = thread + i * THREADS;
    let at = min(k4, vec4s - 1u);
    asked[i] = select(vec4<f32>(), x[at], vec4<bool>(k4 < vec4s));
    asked[OWN + i] = select(vec4<f32>(), added[at], vec4<bool>(k4 < vec4s));
    asked[2u * OWN + i] = added_weight[at];
    if (NORMED) {
      asked[3u * OWN + i] = norm_weight[at];
    }
  }
  return asked;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  for (var i = 0u; i < OWN; i++) {
    stage(thread + i * THREADS, asked[OWN + i]);
  }
  let added_scale = staged_scale(thread);
  var sums = array<vec4<f32>, OWN>();
  for (var i = 0u; i < OWN; i++) {
    sums[i] = fma(asked[OWN + i] * added_scale, asked[2u * OWN + i], asked[i]);
    if (SCALED) {
      sums[i] *= added_weight[params.model_in_features / 4u][params.model_in_features % 4u];
    }
    stage(thread + i * THREADS, sums[i]);
  }
  if (NORMED) {
    let scale = staged_scale(thread);
    for (var i = 0u; i < OWN; i++) {
      stage(thread + i * THREADS, rms_apply(sums[i], scale, asked[3u * OWN + i]));
    }
  }
  workgroupBarrier();
  for (var i = 0u; i < OWN; i++) {
    let k4 = thread + i * THREADS;
    if (first_group && k4 < (params.model_in_features + 3u) / 4u) {
      x_out[k4] = sums[i];
    }
  }
}
