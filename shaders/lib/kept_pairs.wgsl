// Of blocks of 256 with factors of 16 bits a unit and 32 a block, for weights_kept.wgsl.

/// [unit][lane] halves of words, then [lane] words.
fn factors_of(first: u32, unit: u32) -> vec2<u32> {
  return vec2<u32>(scale[first + (unit >> 1u)] >> ((unit & 1u) * 16u), scale[first + 128u + (unit & 31u)]);
}
