// The contraction of one invocation on a software adapter, which pays dearly for barriers, for indexed private arrays and for
// every load: 2 outputs x SERIAL_ROWS rows, everything in named variables. The units of K in order, then
// (x + y) + (z + w) of their vec4.
//
// The kernel declares the bindings weight and scale, EXPERT_PARAMS (experts.ts) as `params`, and load_x.

const SERIAL_ROWS: u32 = 1u; // variant

/// Outputs of an invocation: lanes `lane` and lane + 16 of a tile.
const SERIAL_STEP: u32 = 16u;

fn horizontal(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

/// Outputs of the two lanes for x row `row0`, then for `row1` (SERIAL_ROWS 2).
fn contract(tile: u32, lane: u32, row0: u32, row1: u32) -> vec4<f32> {
  var a0 = vec4<f32>();
  var b0 = vec4<f32>();
  var a1 = vec4<f32>();
  var b1 = vec4<f32>();
  // One loop: software adapters keep no registers over an inner one.
  for (var i = 0u; i < params.used_units * UNIT_PIECES; i++) {
    let unit = i / UNIT_PIECES;
    let piece = i % UNIT_PIECES;
    let at = (tile * params.units + unit) * 32u + lane;
    let wa = load_piece(at, piece);
    let wb = load_piece(at + SERIAL_STEP, piece);
    let k4 = unit * UNIT4 + piece * PIECE4;
    let v0 = load_x_unit(row0, k4);
    a0 = unit_fma(a0, wa, v0);
    b0 = unit_fma(b0, wb, v0);
    if (SERIAL_ROWS == 2u) {
      let v1 = load_x_unit(row1, k4);
      a1 = unit_fma(a1, wa, v1);
      b1 = unit_fma(b1, wb, v1);
    }
  }
  return vec4<f32>(horizontal(a0), horizontal(b0), horizontal(a1), horizontal(b1));
}
