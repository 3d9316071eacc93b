// Units that are multiplied whole; halved_units.wgsl is its counterpart.

const UNIT_PIECES: u32 = 1u;
/// Of one, in vec4s.
const PIECE4: u32 = UNIT4 / UNIT_PIECES;

/// What unit_values takes of a unit's piece.
fn piece_words(words: vec4<u32>, piece: u32) -> vec4<u32> {
  return words;
}

fn piece_scale(d: Scale, piece: u32) -> Scale {
  return d;
}
