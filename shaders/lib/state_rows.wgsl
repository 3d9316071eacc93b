// Rows of one sequence that follow each other in a step run one after another through its state: a run of rows. A state begins with
// zeros at position 0; every later row takes it as the row before left it.
//
// The kernel declares row_info: array<vec2<u32>>, (position, slot) by row; position INACTIVE: no row.

const INACTIVE: u32 = 0xffffffffu;

/// Rows of the run that begins at row `first`; 0 where none does: an inactive row, or one in a run of an earlier one.
fn run_length(first: u32, rows: u32) -> u32 {
  let info = row_info[first];
  let before = row_info[max(first, 1u) - 1u];
  let follows = first > 0u && before.y == info.y && before.x != INACTIVE && before.x + 1u == info.x;
  if (info.x == INACTIVE || follows) {
    return 0u;
  }
  var length = 1u;
  for (var left = rows - first - 1u; left > 0u; left--) {
    let next = row_info[first + length];
    if (next.y != info.y || next.x == INACTIVE || next.x != info.x + length) {
      break;
    }
    length += 1u;
  }
  return length;
}

/// The same of a step's only run, which begins at row 0: rows behind it are inactive.
fn only_run_length(rows: u32) -> u32 {
  var running = 0u;
  var end = rows;
  // Halved till nothing is between them.
  for (var left = 32u - countLeadingZeros(rows); left > 0u; left--) {
    let middle = (running + end) / 2u;
    let is_running = middle < end && row_info[middle].x != INACTIVE;
    running = select(running, middle + 1u, is_running);
    end = select(middle, end, is_running);
  }
  return running;
}
