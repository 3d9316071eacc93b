// Rows in 8 bits by weights in 8 or 4, for the tile of tile.wgsl with the sums of held.wgsl. A row's elements are rounded to
// q * (largest magnitude / 127) in blocks of 32 columns, as the weights' are; a block's products are summed exactly, in integers, and
// its sum times both scales is added by fma, in ascending k. The kernel gives x_at and weight_index (half.wgsl), rows_f32.wgsl or
// rows_bytes.wgsl the rows' blocks, the type of the weights fn unit_bytes(words) -> Bytes, and dot_packed.wgsl or dot_plain.wgsl fn
// dot_bytes.

const BLOCKS: u32 = 2u;
/// vec4s of a block, and those that are staged together.
const BLOCK4: u32 = 8u;
const STAGE4: u32 = BLOCKS * BLOCK4;
/// Units of an output's weights in a stage, and the 16 bytes that each becomes.
const UNITS: u32 = STAGE4 / UNIT4;
const PARTS: u32 = UNIT4 / 4u;
const WEIGHTS: u32 = OUT_TILE * UNITS;
const WEIGHT_LOADS: u32 = (WEIGHTS + THREADS - 1u) / THREADS;
/// Blocks of rows, an invocation each: the others begin with the weights.
const X_BLOCKS: u32 = BLOCKS * ROW_TILE;
const FIRST: u32 = THREADS - X_BLOCKS % THREADS;

alias Bytes = array<vec4<u32>, PARTS>;

/// [16 columns][row or output], and [32 columns][row or output].
var<workgroup> x_bytes: array<vec4<u32>, 2u * BLOCKS * ROW_TILE>;
var<workgroup> weight_bytes: array<vec4<u32>, 2u * BLOCKS * OUT_TILE>;
var<workgroup> x_scales: array<f32, BLOCKS * ROW_TILE>;
var<workgroup> weight_scales: array<f32, BLOCKS * OUT_TILE>;

/// On its way from memory: an invocation has a block of a row.
struct Fetched {
  x: RowBlock,
  words: array<vec4<u32>, WEIGHT_LOADS>,
  scales: array<f32, WEIGHT_LOADS>,
}

fn fetch(place: Place, columns: Columns, thread: u32) -> Fetched {
  var fetched = Fetched();
  let first = (thread + FIRST) % THREADS;
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    let i = min(load * THREADS + first, WEIGHTS - 1u);
    let index = weight_index(place, i % OUT_TILE, columns.base4 / UNIT4 + i / OUT_TILE);
    fetched.words[load] = weight[index];
    fetched.scales[load] = unit_scale(index);
  }
  if (thread < X_BLOCKS) {
    fetched.x = row_block(place, thread / BLOCKS, columns.base4 + thread % BLOCKS * BLOCK4, columns);
  }
  return fetched;
}

fn put(fetched: Fetched, thread: u32) {
  if (thread < X_BLOCKS) {
    let row = thread / BLOCKS;
    let part = thread % BLOCKS;
    let rounded = bytes_of(fetched.x);
    x_scales[part * ROW_TILE + row] = rounded.scale;
    x_bytes[2u * part * ROW_TILE + row] = rounded.words[0];
    x_bytes[(2u * part + 1u) * ROW_TILE + row] = rounded.words[1];
  }
  let first = (thread + FIRST) % THREADS;
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    let i = load * THREADS + first;
    if (i < WEIGHTS) {
      let n = i % OUT_TILE;
      let at = i / OUT_TILE * PARTS;
      let bytes = unit_bytes(fetched.words[load]);
      for (var part = 0u; part < PARTS; part++) {
        weight_bytes[(at + part) * OUT_TILE + n] = bytes[part];
      }
      if (at % 2u == 0u) {
        weight_scales[at / 2u * OUT_TILE + n] = fetched.scales[load];
      }
    }
  }
}

fn multiply(sums: ptr<function, Sums>, quarter: u32, thread: u32) {
  let first = first_held(quarter, thread);
  for (var part = 0u; part < BLOCKS; part++) {
    var products = array<i32, HELD_ROWS * HELD_OUTS>();
    for (var half = 0u; half < 2u; half++) {
      var weights = array<vec4<u32>, HELD_OUTS>();
      for (var j = 0u; j < HELD_OUTS; j++) {
        weights[j] = weight_bytes[(2u * part + half) * OUT_TILE + first.y + OUT_LANES * j];
      }
      for (var i = 0u; i < HELD_ROWS; i++) {
        let v = x_bytes[(2u * part + half) * ROW_TILE + first.x + ROW_LANES * i];
        for (var j = 0u; j < HELD_OUTS; j++) {
          products[i * HELD_OUTS + j] += dot_bytes(v, weights[j]);
        }
      }
    }
    for (var i = 0u; i < HELD_ROWS; i++) {
      let x_scale = x_scales[part * ROW_TILE + first.x + ROW_LANES * i];
      for (var j = 0u; j < HELD_OUTS; j++) {
        let at = i * HELD_OUTS + j;
        let scale = x_scale * weight_scales[part * OUT_TILE + first.y + OUT_LANES * j];
        (*sums)[at] = fma(f32(products[at]), scale, (*sums)[at]);
      }
    }
  }
}
