// llama.cpp's blocks as a file has them (planes.ts), units of 32 elements whose low nibbles lie as q4's:
// value = code * line.x + line.y, rounded once, as llama.cpp's own; UNEVEN: by codes' numbers. The kernel declares the
// bindings `weight: array<vec4<u32>>` and `scale: array<u32>`, and a type's fragment (beside kept_scale.wgsl) gives
//   fn factors_of(first: u32, unit: u32) -> vec2<u32>   of a unit of a block whose factors begin at word `first`
//   fn line(s: Scale, half: u32) -> vec2<f32>           of 16 elements; both factors of a product are exact, and so is it

/// IQ4's numbers -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113: the polynomial is at most 0.44 beside them.
fn uneven(q: vec4<f32>) -> vec4<f32> {
  let square = fma(fma(q, vec4<f32>(0.00158604), vec4<f32>(0.0310864)), q, vec4<f32>(-1.37193));
  return round(fma(fma(square, q, vec4<f32>(24.1738)), q, vec4<f32>(-126.567)));
}

fn values_of(codes: u32, line: vec2<f32>) -> vec4<f32> {
  var q = vec4<f32>(vec4<u32>(codes, codes >> 8u, codes >> 16u, codes >> 24u) & vec4<u32>(255u));
  if (UNEVEN) {
    q = uneven(q);
  }
  return fma(q, vec4<f32>(line.x), vec4<f32>(line.y));
}

fn unit_values(words: vec4<u32>, s: Scale) -> Unit {
  let low = words & vec4<u32>(0x0f0f0f0fu);
  let high = (words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
  let first = line(s, 0u);
  let second = line(s, 1u);
  return Unit(
    values_of(low.x | high_bits(s, 0u), first),
    values_of(high.x | high_bits(s, 1u), first),
    values_of(low.y | high_bits(s, 2u), first),
    values_of(high.y | high_bits(s, 3u), first),
    values_of(low.z | high_bits(s, 4u), second),
    values_of(high.z | high_bits(s, 5u), second),
    values_of(low.w | high_bits(s, 6u), second),
    values_of(high.w | high_bits(s, 7u), second),
  );
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_unit(index: u32) -> Unit {
  return unit_values(weight[index], unit_scale(index));
}

/// The `part`-th vec4 of a unit.
fn load_part(index: u32, part: u32, s: Scale) -> vec4<f32> {
  let nibbles = (weight[index][part >> 1u] >> ((part & 1u) * 4u)) & 0x0f0f0f0fu;
  return values_of(nibbles | high_bits(s, part), line(s, part >> 2u));
}
