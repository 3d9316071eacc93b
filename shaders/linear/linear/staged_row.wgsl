// The rows of a workgroup's tile on a hardware adapter, in its memory: what x_normed.wgsl and linear_add_norm/x_added.wgsl share.

/// vec4s of a padded row, a multiple of 256; the tile's rows must fit the workgroup memory.
const STAGED: u32 = 256u; // variant
/// Of a row and thread.
const OWN: u32 = (STAGED + THREADS - 1u) / THREADS;
/// Of a thread, of the partials of all rows' sums of squares.
const SQUARES: u32 = (TILE_ROWS * RMS_PARTIALS + THREADS - 1u) / THREADS;

/// As rms_partials, of each row.
var<workgroup> squares: array<f32, TILE_ROWS * RMS_PARTIALS>;
var<workgroup> staged: array<vec4<f32>, TILE_ROWS * STAGED>;

fn stage(r: u32, k4: u32, value: vec4<f32>) {
  if (STAGED % THREADS == 0u || k4 < STAGED) {
    staged[r * STAGED + k4] = value;
  }
}

/// A row's scale by its partials, as rms_scale.
fn row_scale(r: u32) -> f32 {
  var at = r * RMS_PARTIALS;
  var chains = vec4<f32>(squares[at], squares[at + 1u], squares[at + 2u], squares[at + 3u]);
  for (var left = RMS_PARTIALS / 4u - 1u; left >= 1u; left--) {
    at += 4u;
    chains += vec4<f32>(squares[at], squares[at + 1u], squares[at + 2u], squares[at + 3u]);
  }
  let total = (chains.x + chains.y) + (chains.z + chains.w);
  return inverseSqrt(total / f32(params.model_in_features) + params.eps);
}

/// Of each row that is staged: the threads come together before, and when they have read it.
fn staged_scales(thread: u32) -> array<f32, TILE_ROWS> {
  workgroupBarrier();
  for (var i = 0u; i < SQUARES; i++) {
    let at = i * THREADS + thread;
    if (at < TILE_ROWS * RMS_PARTIALS) {
      var partial = 0.0;
      let first = at / RMS_PARTIALS * STAGED + at % RMS_PARTIALS;
      for (var unit = 0u; unit < STAGED / RMS_PARTIALS; unit++) {
        partial = rms_accumulate(partial, staged[first + unit * RMS_PARTIALS]);
      }
      squares[at] = partial;
    }
  }
  workgroupBarrier();
  var scales = array<f32, TILE_ROWS>();
  for (var r = 0u; r < TILE_ROWS; r++) {
    scales[r] = row_scale(r);
  }
  return scales;
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[row % TILE_ROWS * STAGED + k4];
}
