// A piece: four rows' low bytes; beside it in half a word three more bits of each, a scale of 3 bits and a shift.

fn high(s: Scale) -> u32 {
  return s.beside[s.piece >> 1u] >> (16u * (s.piece & 1u));
}

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return byte_of(words[s.piece], part >> 1u) | (bits(high(s), 3u * (part >> 1u), 3u) << 8u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(high(s), 15u, 1u);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(high(s), 12u, 3u);
}
