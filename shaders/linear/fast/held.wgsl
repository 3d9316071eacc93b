// Sums of a tile (tile.wgsl) in the registers of invocations: each has the rows row + ROW_LANES i and the
// outputs n + OUT_LANES j of a quarter.

const PIECE_ROWS: u32 = 16u;
const PIECE_OUTS: u32 = 16u;
const OUT_LANES: u32 = 8u;
const LANES: u32 = THREADS / 4u;
const ROW_LANES: u32 = LANES / OUT_LANES;
const HELD_ROWS: u32 = QUARTER_ROWS / ROW_LANES;
const HELD_OUTS: u32 = QUARTER_OUTS / OUT_LANES;
/// In a piece.
const PIECE_HELD_ROWS: u32 = PIECE_ROWS / ROW_LANES;
const PIECE_HELD_OUTS: u32 = PIECE_OUTS / OUT_LANES;

alias Sums = array<f32, HELD_ROWS * HELD_OUTS>;

fn quarter_of(thread: u32) -> u32 {
  return thread / LANES;
}

/// In the tile, the first row and output of an invocation.
fn first_held(quarter: u32, thread: u32) -> vec2<u32> {
  let lane = thread % LANES;
  return vec2<u32>(quarter / 2u * QUARTER_ROWS + lane / OUT_LANES, quarter % 2u * QUARTER_OUTS + lane % OUT_LANES);
}

fn hand_over(sums: ptr<function, Sums>, piece: u32, quarter: u32, thread: u32) {
  let lane = thread % LANES;
  let to = quarter * PIECE + lane / OUT_LANES * PIECE_OUTS + lane % OUT_LANES;
  for (var i = 0u; i < PIECE_HELD_ROWS; i++) {
    for (var j = 0u; j < PIECE_HELD_OUTS; j++) {
      let row = piece / PIECES_ACROSS * PIECE_HELD_ROWS + i;
      let held = row * HELD_OUTS + piece % PIECES_ACROSS * PIECE_HELD_OUTS + j;
      piece_sums[to + ROW_LANES * i * PIECE_OUTS + OUT_LANES * j] = (*sums)[held];
    }
  }
}
