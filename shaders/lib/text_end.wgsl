// Entries of the text that a step's rows are, all of it, where rows attend both ways. The kernel declares row_info.

// `rows`: of the step; the last of them that is active has the text's last entry.
fn text_end(rows: u32) -> u32 {
  var end = 0u;
  for (var left = min(rows, 16u); left > 0u; left--) {
    let position = row_info[rows - left].x;
    if (position != INACTIVE) {
      end = max(end, position + 1u);
    }
  }
  return end;
}
