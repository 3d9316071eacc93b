// 16-byte units of 64 elements, of 2 bits in weights_kept.wgsl, that are multiplied one half after the other: what is decoded at
// once are 32 elements, as elsewhere, and so are a Unit and its x.

const UNIT_PIECES: u32 = 2u;
/// Of one, in vec4s.
const PIECE4: u32 = UNIT4 / UNIT_PIECES;

fn piece_words(words: vec4<u32>, piece: u32) -> vec4<u32> {
  return select(words, words.zwxy, piece > 0u);
}

/// A half has a word of bits above the lowest two, and two scales, of 8 bits each.
fn piece_scale(s: Scale, piece: u32) -> Scale {
  return Scale(select(s.high, s.high.yx, piece > 0u), vec2<u32>(s.factors.x >> (16u * piece), s.factors.y));
}
