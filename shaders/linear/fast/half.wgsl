// What multiplies of f16 and f32 stage (tile.wgsl): 32 columns of rows and weights. HALVES: they are rounded to f16, clamped beyond its
// range. The kernel gives fn x_at(place, row, k4, columns) -> vec4<f32> and fn weight_index(place, n, unit) -> u32 of rows and outputs
// of its tile.

const HALVES: bool = true; // variant

alias Rows = vec4<f32>;

const STAGE4: u32 = 8u;
const X_LOADS: u32 = ROW_TILE * STAGE4 / THREADS;
/// Units of an output's weights in a stage, and invocations that share one: all have some of the weights.
const UNITS: u32 = STAGE4 / UNIT4;
const SPLIT: u32 = min(max(THREADS / TILE_UNITS, 1u), min(UNIT4, 4u));
const PARTS: u32 = UNIT4 / SPLIT;
const TILE_UNITS: u32 = OUT_TILE * UNITS;
const WEIGHTS: u32 = TILE_UNITS * SPLIT;
const WEIGHT_LOADS: u32 = (WEIGHTS + THREADS - 1u) / THREADS;

/// On its way from memory.
struct Fetched {
  x: array<vec4<f32>, X_LOADS>,
  words: array<vec4<u32>, WEIGHT_LOADS>,
  scales: array<f32, WEIGHT_LOADS>,
}

/// The words of a unit that an invocation has, from its first on.
fn own_words(index: u32, share: u32) -> vec4<u32> {
  if (SPLIT == 4u) {
    return vec4<u32>(weight[index][share], 0u, 0u, 0u);
  } else if (SPLIT == 2u) {
    return vec4<u32>(weight[index][2u * share], weight[index][2u * share + 1u], 0u, 0u);
  }
  return weight[index];
}

fn fetch(place: Place, columns: Columns, thread: u32) -> Fetched {
  var fetched = Fetched();
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    let i = min(load * THREADS + thread, WEIGHTS - 1u);
    let index = weight_index(place, i % OUT_TILE, columns.base4 / UNIT4 + i % TILE_UNITS / OUT_TILE);
    fetched.words[load] = own_words(index, i / TILE_UNITS);
    fetched.scales[load] = unit_scale(index);
  }
  for (var load = 0u; load < X_LOADS; load++) {
    let i = load * THREADS + thread;
    fetched.x[load] = x_at(place, i / STAGE4, columns.base4 + i % STAGE4, columns);
  }
  return fetched;
}

fn in_range(values: vec4<f32>) -> vec4<f32> {
  return select(values, clamp(values, vec4<f32>(-65504.0), vec4<f32>(65504.0)), HALVES);
}

fn put(fetched: Fetched, thread: u32) {
  for (var load = 0u; load < X_LOADS; load++) {
    let i = load * THREADS + thread;
    put_x(i / STAGE4, i % STAGE4, in_range(fetched.x[load]));
  }
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    let i = load * THREADS + thread;
    if (i < WEIGHTS) {
      let first4 = i % TILE_UNITS / OUT_TILE * UNIT4 + i / TILE_UNITS * PARTS;
      let values = unit_values(fetched.words[load], fetched.scales[load]);
      for (var part = 0u; part < PARTS; part++) {
        put_weight(i % OUT_TILE, first4 + part, in_range(values[part] * fetched.scales[load]));
      }
    }
  }
}
