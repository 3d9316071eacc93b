// A piece: eight rows' low bytes; beside it a word of signs; beside the unit a byte of rows' high bits for each piece, then the scales.

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return byte_of(words[2u * s.piece + (part >> 2u)], part & 3u) | (bits(s.beside.z, 8u * s.piece + part, 1u) << 8u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return s.beside[s.piece] >> (4u * part);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(s.beside.z, 16u + 4u * s.piece, 4u);
}
