// What the f16 multiplies stage (tile.wgsl): 32 columns of rows and weights, rounded to f16. Beyond f16's range they are clamped. The
// kernel gives fn x_at(place, row, k4, columns) -> vec4<f32> and fn weight_index(place, n, unit) -> u32 of rows and outputs of its tile.

const STAGE4: u32 = 8u;
const X_LOADS: u32 = ROW_TILE * STAGE4 / THREADS;
/// Units of an output's weights in a stage.
const UNITS: u32 = STAGE4 / UNIT4;
const WEIGHTS: u32 = OUT_TILE * UNITS;
const WEIGHT_LOADS: u32 = (WEIGHTS + THREADS - 1u) / THREADS;

/// On its way from memory.
struct Fetched {
  x: array<vec4<f32>, X_LOADS>,
  words: array<vec4<u32>, WEIGHT_LOADS>,
  scales: array<f32, WEIGHT_LOADS>,
}

fn fetch(place: Place, columns: Columns, thread: u32) -> Fetched {
  var fetched = Fetched();
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    let i = min(load * THREADS + thread, WEIGHTS - 1u);
    let index = weight_index(place, i % OUT_TILE, columns.base4 / UNIT4 + i / OUT_TILE);
    fetched.words[load] = weight[index];
    fetched.scales[load] = unit_scale(index);
  }
  for (var load = 0u; load < X_LOADS; load++) {
    let i = load * THREADS + thread;
    fetched.x[load] = x_at(place, i / STAGE4, columns.base4 + i % STAGE4, columns);
  }
  return fetched;
}

fn in_range(values: vec4<f32>) -> vec4<f32> {
  return clamp(values, vec4<f32>(-65504.0), vec4<f32>(65504.0));
}

fn put(fetched: Fetched, thread: u32) {
  for (var load = 0u; load < X_LOADS; load++) {
    let i = load * THREADS + thread;
    put_x(i / STAGE4, i % STAGE4, in_range(fetched.x[load]));
  }
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    let i = load * THREADS + thread;
    if (i < WEIGHTS) {
      let values = unit_values(fetched.words[load]);
      for (var part = 0u; part < UNIT4; part++) {
        put_weight(i % OUT_TILE, i / OUT_TILE * UNIT4 + part, in_range(values[part] * fetched.scales[load]));
      }
    }
  }
}
