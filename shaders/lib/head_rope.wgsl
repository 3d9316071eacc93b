// Which units of a q or k head are rotated with each other (rotate.wgsl): of its first ROTARY elements, one of the first half and one
// of the second. The others, which aren't rotated, are done in pairs, too: of the first and the second half of them.
// Joined after the kernel's HALF_UNITS.

//
// QUERY_ROWS: rope_table has two rows a position, of keys and of queries, whose are multiplied by something.

const ROTARY: u32 = 64; // variant
const QUERY_ROWS: bool = false; // variant
// Units of half of what is rotated.
const ROTARY_HALF: u32 = ROTARY / 8u;
const PARTIAL: bool = ROTARY_HALF < HALF_UNITS;

fn rotates(pair: u32) -> bool {
  return !PARTIAL || pair < ROTARY_HALF;
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
