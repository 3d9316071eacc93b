// A piece: four halves of words of 9 bits of a row and 7 signs; beside it two scales of 4 bits.

fn pair(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return words[2u * s.piece + (part >> 2u)] >> (((part >> 1u) & 1u) * 16u);
}

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(pair(words, s, part), 0u, 9u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return signs_of_7(bits(pair(words, s, part), 9u, 7u), part);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(s.beside.w, 8u * s.piece + 4u * (part >> 2u), 4u);
}
