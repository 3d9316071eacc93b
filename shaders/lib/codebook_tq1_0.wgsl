// TQ1_0 for weights_codebook.wgsl, a piece of 32 elements: byte j of its word has element j of the first five vec4s, of 20 bits beside it
// bits 5 j on those of the other three. A digit to base 3 is had of a fraction of 256 or 32.

fn trits(fractions: vec4<u32>, n: u32, ones: u32) -> vec4<f32> {
  // 3^n, of up to 4.
  let power = select((0x1b090301u >> (8u * min(n, 3u))) & 255u, 81u, n == 4u);
  return vec4<f32>((((fractions * power) & vec4<u32>(ones)) * 3u) >> vec4<u32>(countOneBits(ones))) - 1.0;
}

fn numbers_of(words: vec4<u32>, s: Scale, part: u32) -> vec4<f32> {
  if (part < 5u) {
    return trits((vec4<u32>(words[s.piece]) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u), part, 255u);
  }
  let low = bits(s.beside[s.piece >> 1u], 16u * (s.piece & 1u), 16u);
  let others = low | (bits(s.beside.w, 4u * s.piece, 4u) << 16u);
  return trits((vec4<u32>(others) >> vec4<u32>(0u, 5u, 10u, 15u)) & vec4<u32>(31u), part - 5u, 31u);
}

fn factor(words: vec4<u32>, s: Scale, part: u32) -> f32 {
  return 1.0;
}
