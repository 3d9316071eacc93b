// Codebooks for weights_codebook.wgsl: CODEBOOK has rows in halves of words, of eight sizes of 2 bits or, with FOURS, four of 3.
// A type's fragment gives
//   fn row_of(words: vec4<u32>, s: Scale, part: u32) -> u32
//   fn signs_of(words: vec4<u32>, s: Scale, part: u32) -> u32    a bit for each of the four that is negative
//   fn scale_of(words: vec4<u32>, s: Scale, part: u32) -> u32
// and fn numbers(sizes: vec4<u32>, signs: u32) -> vec4<f32>, of sizes and signs.

fn numbers_of(words: vec4<u32>, s: Scale, part: u32) -> vec4<f32> {
  let row = row_of(words, s, part);
  let sizes = CODEBOOK[row >> 1u] >> ((row & 1u) * 16u);
  let signs = signs_of(words, s, part);
  if (FOURS) {
    return numbers((vec4<u32>(sizes) >> vec4<u32>(0u, 3u, 6u, 9u)) & vec4<u32>(7u), signs);
  }
  return numbers((vec4<u32>(sizes >> ((part & 1u) * 8u)) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u), signs);
}

fn factor(words: vec4<u32>, s: Scale, part: u32) -> f32 {
  return f32(2u * scale_of(words, s, part) + 1u) * NUMBER_STEP;
}

/// Of 7 signs of eight elements those of a vec4; the eighth makes their number even.
fn signs_of_7(signs: u32, part: u32) -> u32 {
  return (signs | ((countOneBits(signs) & 1u) << 7u)) >> ((part & 1u) * 4u);
}

fn signed(numbers: vec4<f32>, signs: u32) -> vec4<f32> {
  return select(numbers, -numbers, (vec4<u32>(signs) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>());
}
