// A piece: eight rows in bytes; beside it a word of four of 7 signs and a scale of 4 bits.

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return byte_of(words[2u * s.piece + (part >> 2u)], part & 3u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return signs_of_7(bits(s.beside[s.piece], (part >> 1u) * 7u, 7u), part);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return s.beside[s.piece] >> 28u;
}
