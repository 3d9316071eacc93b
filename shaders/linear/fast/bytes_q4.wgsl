// The signed bytes q - 8 of a unit of q4 weights, in ascending k (bytes.wgsl).

/// q - 8 of four bytes q < 16 at once: the upper bits keep the bytes from borrowing of each other.
fn less_8(bytes: vec4<u32>) -> vec4<u32> {
  return ((bytes | vec4<u32>(0x80808080u)) - vec4<u32>(0x08080808u)) ^ vec4<u32>(0x80808080u);
}

fn unit_bytes(words: vec4<u32>) -> Bytes {
  let low = less_8(words & vec4<u32>(0x0f0f0f0fu));
  let high = less_8((words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
  return Bytes(vec4<u32>(low.x, high.x, low.y, high.y), vec4<u32>(low.z, high.z, low.w, high.w));
}
