// How a tile's sums (tile.wgsl) are handed over.

const PIECE: u32 = PIECE_ROWS * PIECE_OUTS;
const PIECES_ACROSS: u32 = QUARTER_OUTS / PIECE_OUTS;
const PIECES: u32 = QUARTER_ROWS / PIECE_ROWS * PIECES_ACROSS;

/// [quarter][row][output] of one piece of each quarter.
var<workgroup> piece_sums: array<f32, 4u * PIECE>;

/// (row, output) in the tile of element `i` of piece_sums.
fn place_of(piece: u32, i: u32) -> vec2<u32> {
  let quarter = i / PIECE;
  let row = quarter / 2u * QUARTER_ROWS + piece / PIECES_ACROSS * PIECE_ROWS + i % PIECE / PIECE_OUTS;
  let n = quarter % 2u * QUARTER_OUTS + piece % PIECES_ACROSS * PIECE_OUTS + i % PIECE_OUTS;
  return vec2<u32>(row, n);
}
