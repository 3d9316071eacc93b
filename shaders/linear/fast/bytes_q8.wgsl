// The signed bytes of a unit of q8 weights, in ascending k (bytes.wgsl).

fn unit_bytes(words: vec4<u32>) -> Bytes {
  return Bytes(words);
}
