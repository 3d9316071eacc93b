// A piece: four rows' low bytes; beside it in half a word (three more bits, a shift) of each; beside the unit two halves of words of
// two pieces' scales, 3 bits for 16 elements.

fn high(s: Scale, part: u32) -> u32 {
  return s.beside[s.piece >> 1u] >> (16u * (s.piece & 1u) + 4u * (part >> 1u));
}

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return byte_of(words[s.piece], part >> 1u) | (bits(high(s, part), 0u, 3u) << 8u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(high(s, part), 3u, 1u);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(s.beside.z, 16u * (s.piece >> 1u) + 6u * (s.piece & 1u) + 3u * (part >> 2u), 3u);
}
