// The tile of a workgroup in the fast kernels for prompts: ROW_TILE rows x OUT_TILE outputs, in 2 x 2 quarters. A multiply fragment
// sums quarters in registers and hands its sums over piece by piece, PIECE_ROWS x PIECE_OUTS of each quarter at once, so that the
// kernels need not know how it holds them:
//
//   alias Sums; const PIECE_ROWS, PIECE_OUTS
//   fn quarter_of(thread) -> u32                       4 or more: has no quarter
//   fn put_x(row, k4, values); fn put_weight(out, k4, values)      to workgroup memory (half.wgsl)
//   fn multiply(sums, quarter, thread)                 adds the products of what is staged, in ascending k
//   fn hand_over(sums, piece, quarter, thread)         to piece_sums (pieces.wgsl)
//
// OUT_TILE, ROW_TILE: 32 or 64; THREADS: 128 or 256, or 4 subgroups. They change no bit.

const OUT_TILE: u32 = 64u; // variant
const ROW_TILE: u32 = 64u; // variant
const THREADS: u32 = 128u; // variant

const QUARTER_ROWS: u32 = ROW_TILE / 2u;
const QUARTER_OUTS: u32 = OUT_TILE / 2u;
/// Columns that are staged together, from 4 * base4 on; rows are zero outside [start4, end4).
struct Columns {
  base4: u32,
  start4: u32,
  end4: u32,
}
