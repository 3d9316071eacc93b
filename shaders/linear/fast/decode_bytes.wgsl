// Rows in 8 bits by weights in 8 or 4 for contract.wgsl, where precision 'fast' multiplies bytes: takes the place of the weights'
// fragment. A row's blocks of 32 are rounded by byte_block.wgsl, once a workgroup; a unit's
// products are summed exactly, in integers, and its sum times both scales is added by fma. So a row's bits don't follow from what
// is beside it. The kernel has LINEAR_PARAMS, no segment of which cuts a block; scale_q4.wgsl or scale_q8.wgsl gives unit_scale,
// dot_packed.wgsl or dot_plain.wgsl fn dot_bytes.

const UNIT: u32 = 32u; // variant
const UNIT4: u32 = UNIT / 4u;
/// What is taken off of codes of weights in 4 bits.
const LESS: i32 = 8; // variant
/// Of a row, on this rank.
const X_BLOCKS: u32 = 28u; // variant
const X_ROUNDS: u32 = (TILE_ROWS * X_BLOCKS + THREADS - 1u) / THREADS;
const WORDS4: u32 = UNIT4 / 4u;

/// A unit's bytes, and of a row then the block's scale and LESS times its sum.
alias Unit = array<vec4<u32>, WORDS4 + 1u>;
alias Sum = f32;

/// [row of the tile][block][16 columns], [row of the tile][block] (scale, LESS times the sum)
var<workgroup> x_bytes: array<vec4<u32>, TILE_ROWS * X_BLOCKS * 2u>;
var<workgroup> x_scales: array<vec2<f32>, TILE_ROWS * X_BLOCKS>;

/// Rounds the rows of the tile, each thread a block. In uniform control flow, after stage_x.
fn stage_units(first_row: u32, thread: u32) {
  for (var i = 0u; i < X_ROUNDS; i++) {
    let at = i * THREADS + thread;
    if (at < TILE_ROWS * X_BLOCKS) {
      let first4 = params.first_unit * UNIT4 + at % X_BLOCKS * 8u;
      var values = array<vec4<f32>, 8>();
      for (var j = 0u; j < 8u; j++) {
        values[j] = load_x(first_row + at / X_BLOCKS, first4 + j);
      }
      let rounded = byte_block(values);
      x_bytes[2u * at] = rounded.words[0];
      x_bytes[2u * at + 1u] = rounded.words[1];
      let ones = vec4<u32>(0x01010101u);
      let sum = dot_bytes(rounded.words[0], ones) + dot_bytes(rounded.words[1], ones);
      x_scales[at] = vec2<f32>(rounded.scale, f32(LESS * sum));
    }
  }
  workgroupBarrier();
}

fn load_x_unit(row: u32, k4: u32) -> Unit {
  let first = k4 - params.first_unit * UNIT4;
  let at = row % TILE_ROWS * X_BLOCKS + first / 8u;
  var unit = Unit();
  for (var i = 0u; i < WORDS4; i++) {
    unit[i] = x_bytes[2u * at + first / 4u % 2u + i];
  }
  unit[WORDS4] = vec4<u32>(bitcast<vec2<u32>>(x_scales[at]), 0u, 0u);
  return unit;
}

/// Codes of weights, LESS too large.
fn unit_values(words: vec4<u32>, d: Scale) -> Unit {
  var unit = Unit();
  if (WORDS4 == 1u) {
    unit[0] = words;
  } else {
    let low = words & vec4<u32>(0x0f0f0f0fu);
    let high = (words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    unit[0] = vec4<u32>(low.x, high.x, low.y, high.y);
    unit[WORDS4 - 1u] = vec4<u32>(low.z, high.z, low.w, high.w);
  }
  return unit;
}

fn unit_add(sum: Sum, w: Unit, d: Scale, v: Unit) -> Sum {
  var products = 0;
  for (var i = 0u; i < WORDS4; i++) {
    products += dot_bytes(v[i], w[i]);
  }
  let row = bitcast<vec2<f32>>(v[WORDS4].xy);
  return fma(f32(products) - row.y, row.x * d, sum);
}

fn sum_total(sum: Sum) -> f32 {
  return sum;
}
