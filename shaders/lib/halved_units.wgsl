// 16-byte units of 64 elements of 2 bits, or 128 of 1, in weights_kept.wgsl, that are multiplied in pieces one after the other: what is
// decoded at once are 32 elements, as elsewhere, and so are a Unit and its x.

const UNIT_PIECES: u32 = UNIT / 32u;
/// Of one, in vec4s.
const PIECE4: u32 = UNIT4 / UNIT_PIECES;

fn piece_words(words: vec4<u32>, piece: u32) -> vec4<u32> {
  if (UNIT_PIECES > 2u) {
    return vec4<u32>(words[piece]);
  }
  return select(words, words.zwxy, piece > 0u);
}

/// Half a unit of 64 has a word of bits above the lowest two, and two scales, of 8 bits each.
fn piece_scale(s: Scale, piece: u32) -> Scale {
  return Scale(select(s.high, s.high.yx, piece > 0u), vec2<u32>(s.factors.x >> ((16u * piece) & 31u), s.factors.y));
}
