// Rows that see what is behind them: those of a run see all of it, and what is before it. Joined after window.wgsl. The kernel declares
// chunk_offsets, in which the ends of runs lie behind the offsets, one of each slot's sequence (0: none in this step), and the params
// run_rows, of a run, and run_ends, where its ends begin. A text that is read both ways whole is a run of any length.
//
// Variants: BOTH_WAYS; without it each row sees what is up to it. BOUNDED: of a text that is read whole each row sees what lies between
// bounds of its own, which lie behind the end, (first, end) by position; a kernel that attends is WINDOWED then.
const BOTH_WAYS: bool = false; // variant
const BOUNDED: bool = false; // variant

// The first entry that a row sees.
fn seen_start(last: u32) -> u32 {
  if (BOUNDED) {
    return chunk_offsets[params.run_ends + 2u * last + 1u];
  }
  return first_seen(last);
}

// Behind the last position that a row of the slot sees.
fn seen_end(position: u32, slot: u32) -> u32 {
  if (BOUNDED) {
    return chunk_offsets[params.run_ends + 2u * position + 2u];
  }
  if (BOTH_WAYS) {
    let end = chunk_offsets[params.run_ends + slot];
    if (position < end && position + params.run_rows >= end) {
      return select(end, min(end, position + params.window), WINDOWED);
    }
  }
  return position + 1u;
}
