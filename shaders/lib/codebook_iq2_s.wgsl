// A piece: four rows' low bytes, four of signs; beside the unit a byte of rows' two high bits for each piece, then one of two scales.

fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  let eight = part >> 1u;
  return byte_of(words[2u * s.piece], eight) | (bits(s.beside.x, 8u * s.piece + 2u * eight, 2u) << 8u);
}

fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return words[2u * s.piece + 1u] >> (4u * part);
}

fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32 {
  return bits(s.beside.x, 16u + 8u * s.piece + 4u * (part >> 2u), 4u);
}
