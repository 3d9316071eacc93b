// A piece: four rows in bytes, then a word of four of 7 signs and a scale of 4 bits.

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return byte_of(words[2u * s.piece], part >> 1u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return signs_of_7(bits(words[2u * s.piece + 1u], (part >> 1u) * 7u, 7u), part);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return words[2u * s.piece + 1u] >> 28u;
}
