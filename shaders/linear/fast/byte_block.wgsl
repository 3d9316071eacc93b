// A block of 32 elements of a row in 8 bits: q * (largest magnitude / 127).

struct ByteBlock {
  words: array<vec4<u32>, 2>,
  scale: f32,
}

/// Four numbers of at most 127 in magnitude, in a word.
fn byte_word(values: vec4<f32>) -> u32 {
  let bytes = vec4<u32>(vec4<i32>(round(values))) & vec4<u32>(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn byte_block(values: array<vec4<f32>, 8>) -> ByteBlock {
  var most = abs(values[0]);
  for (var i = 1u; i < 8u; i++) {
    most = max(most, abs(values[i]));
  }
  let largest = max(max(most.x, most.y), max(most.z, most.w));
  // What is smaller has no inverse in f32.
  let inverse = select(0.0, 127.0 / largest, largest > 1e-35);
  var bytes = ByteBlock();
  for (var half = 0u; half < 2u; half++) {
    bytes.words[half] = vec4<u32>(
      byte_word(values[4u * half] * inverse),
      byte_word(values[4u * half + 1u] * inverse),
      byte_word(values[4u * half + 2u] * inverse),
      byte_word(values[4u * half + 3u] * inverse),
    );
  }
  bytes.scale = largest / 127.0;
  return bytes;
}
