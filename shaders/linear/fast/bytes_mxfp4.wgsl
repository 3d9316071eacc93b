// The signed bytes of a unit of mxfp4 weights, twice their values, in ascending k (bytes.wgsl).

/// Less 12 of four bytes up to 24 at once: the upper bits keep the bytes from borrowing of each other.
fn less_12(bytes: vec4<u32>) -> vec4<u32> {
  return ((bytes | vec4<u32>(0x80808080u)) - vec4<u32>(0x0c0c0c0cu)) ^ vec4<u32>(0x80808080u);
}

fn unit_bytes(words: vec4<u32>) -> Bytes {
  let low = less_12(biased(words & vec4<u32>(0x0f0f0f0fu)));
  let high = less_12(biased((words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)));
  return Bytes(vec4<u32>(low.x, high.x, low.y, high.y), vec4<u32>(low.z, high.z, low.w, high.w));
}
