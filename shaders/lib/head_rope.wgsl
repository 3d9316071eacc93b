// Which units of a q or k head are rotated with each other (rotate.wgsl): of its first ROTARY elements, one of the first half and one
// of the second. The others, which aren't rotated, are done in pairs, too: of the first and the second half of them.
// Joined after the kernel's HALF_UNITS.

//
// QUERY_ROWS: rope_table has two rows a position, of keys and of queries, whose are multiplied by something.
//
// SPANS: rows of pictures have three positions: that of the picture's first row, and on from there those of the row's line and column;
// the row behind a picture has the largest of it plus 1. Behind the table's POSITIONS lie [slot][SPANS] pictures: (the entry of its first
// row, columns), then (lines, 0), lines 0 behind the last.

const ROTARY: u32 = 64; // variant
const QUERY_ROWS: bool = false; // variant
const SPANS: u32 = 0u; // variant
const POSITIONS: u32 = 0u; // variant
// Pair i turns by the line's where i % 3 is 1, by the column's where it is 2, each below these; not IN_TURN: by the line's from BEFORE on, by
// the column's behind those.
const IN_TURN: bool = true; // variant
const BEFORE: u32 = 0u; // variant
const LINE_PAIRS: u32 = 0u; // variant
const COLUMN_PAIRS: u32 = 0u; // variant
// Units of half of what is rotated.
const ROTARY_HALF: u32 = ROTARY / 8u;
const PARTIAL: bool = ROTARY_HALF < HALF_UNITS;

fn rotates(pair: u32) -> bool {
  return !PARTIAL || pair < ROTARY_HALF;
}

// Of a row_info: what its picture, its line and its column are turned by; of text all the same.
fn rope_positions(info: vec2<u32>) -> vec3<u32> {
  var behind = 0u;
  for (var left = SPANS; left > 0u; left--) {
    let at = POSITIONS * (ROTARY / 2u) + (info.y * SPANS + SPANS - left) * 2u;
    let start = u32(rope_table[at].x);
    let columns = u32(rope_table[at].y);
    let lines = u32(rope_table[at + 1u].x);
    if (lines == 0u || info.x < start) {
      break;
    }
    let row = info.x - start;
    if (row < lines * columns) {
      return vec3<u32>(start - behind) + vec3<u32>(0u, row / columns, row % columns);
    }
    behind += lines * columns - max(lines, columns);
  }
  return vec3<u32>(info.x - behind);
}

fn turn(low: vec4<f32>, high: vec4<f32>, positions: vec3<u32>, pair: u32, is_query: bool) -> Rotated {
  if (SPANS == 0u) {
    return rotate(low, high, rope_at(positions.x, pair, is_query));
  }
  let pairs = vec4<u32>(pair * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  var by_line = (pairs % 3u == vec4<u32>(1u)) & (pairs < vec4<u32>(LINE_PAIRS));
  var by_column = (pairs % 3u == vec4<u32>(2u)) & (pairs < vec4<u32>(COLUMN_PAIRS));
  if (!IN_TURN) {
    by_line = (pairs >= vec4<u32>(BEFORE)) & (pairs < vec4<u32>(LINE_PAIRS));
    by_column = (pairs >= vec4<u32>(LINE_PAIRS)) & (pairs < vec4<u32>(COLUMN_PAIRS));
  }
  let rows = select(select(vec4<u32>(positions.x), vec4<u32>(positions.y), by_line), vec4<u32>(positions.z), by_column);
  return rotate_each(low, high, rows * (ROTARY / 2u) + pairs);
}

// The two units of pair 0 .. HALF_UNITS - 1.
fn pair_units(pair: u32) -> vec2<u32> {
  if (PARTIAL) {
    return select(vec2<u32>(ROTARY_HALF + pair, HALF_UNITS + pair), vec2<u32>(pair, ROTARY_HALF + pair), pair < ROTARY_HALF);
  }
  return vec2<u32>(pair, HALF_UNITS + pair);
}

// `at`: the first of the pair's 4 cosines and sines.
fn rope_at(position: u32, pair: u32, is_query: bool) -> u32 {
  var row = position;
  if (QUERY_ROWS) {
    row = 2u * position + select(0u, 1u, is_query);
  }
  return row * (ROTARY / 2u) + pair * 4u;
}
