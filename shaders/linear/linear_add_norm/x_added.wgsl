// Sums are added to the rows of a workgroup's tile, normalised by themselves, with the bits of rms_norm; with NORMED the new rows are
// normalised, too. The counterpart of linear/x_normed.wgsl, joined after linear/staged_row.wgsl. A thread asks for all that it needs at once and
// keeps it. The first workgroup of a tile writes the new rows.

const NORMED: bool = true; // variant
const SCALED: bool = false; // variant

/// x and added of each row, added_weight and norm_weight. Beyond the row the first two are zero.
alias Asked = array<vec4<f32>, (2u * TILE_ROWS + 2u) * OWN>;

const ROWS_OWN: u32 = TILE_ROWS * OWN;

fn ask_x(row: u32, thread: u32) -> Asked {
  let vec4s = (params.model_in_features + 3u) / 4u;
  var asked = Asked();
  for (var i = 0u; i < OWN; i++) {
    let k4 = thread + i * THREADS;
    let at = min(k4, vec4s - 1u);
    for (var r = 0u; r < TILE_ROWS; r++) {
      let unit = (row + r) * params.x_stride4 + at;
      asked[r * OWN + i] = select(vec4<f32>(), x[unit], vec4<bool>(k4 < vec4s));
      asked[ROWS_OWN + r * OWN + i] = select(vec4<f32>(), added[unit], vec4<bool>(k4 < vec4s));
    }
    asked[2u * ROWS_OWN + i] = added_weight[at];
    if (NORMED) {
      asked[2u * ROWS_OWN + OWN + i] = norm_weight[at];
    }
  }
  return asked;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  for (var i = 0u; i < ROWS_OWN; i++) {
    stage(i / OWN, thread + i % OWN * THREADS, asked[ROWS_OWN + i]);
  }
  let added_scales = staged_scales(thread);
  var sums = array<vec4<f32>, ROWS_OWN>();
  for (var i = 0u; i < ROWS_OWN; i++) {
    sums[i] = fma(asked[ROWS_OWN + i] * added_scales[i / OWN], asked[2u * ROWS_OWN + i % OWN], asked[i]);
    if (SCALED) {
      sums[i] *= added_weight[params.model_in_features / 4u][params.model_in_features % 4u];
    }
    stage(i / OWN, thread + i % OWN * THREADS, sums[i]);
  }
  if (NORMED) {
    let scales = staged_scales(thread);
    for (var i = 0u; i < ROWS_OWN; i++) {
      let normed = rms_apply(sums[i], scales[i / OWN], asked[2u * ROWS_OWN + OWN + i % OWN]);
      stage(i / OWN, thread + i % OWN * THREADS, normed);
    }
  }
  workgroupBarrier();
  for (var i = 0u; i < ROWS_OWN; i++) {
    let k4 = thread + i % OWN * THREADS;
    let r = row + i / OWN;
    if (first_group && r < params.rows && k4 < (params.model_in_features + 3u) / 4u) {
      x_out[r * params.x_stride4 + k4] = sums[i];
    }
  }
}
