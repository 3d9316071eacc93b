// llama.cpp's blocks as a file has them (planes.ts), units of the LOW bits of their elements: byte j of a word has element j of
// 8 / LOW vec4s in a row, the first one lowest;
// value = code * line.x + line.y, rounded once, as llama.cpp's own; UNEVEN and E2M1: by codes' numbers. The kernel declares the
// bindings `weight: array<vec4<u32>>` and `scale: array<u32>`, and a type's fragment (beside kept_scale.wgsl) gives
//   fn factors_of(first: u32, unit: u32) -> vec2<u32>   of a unit of a block whose factors begin at word `first`
//   fn line(s: Scale, sixteen: u32) -> vec2<f32>        of 16 elements; both factors of a product are exact, and so is it

/// IQ4's numbers -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113: the polynomial is at most 0.44 beside them.
fn uneven(q: vec4<f32>) -> vec4<f32> {
  let square = fma(fma(q, vec4<f32>(0.00158604), vec4<f32>(0.0310864)), q, vec4<f32>(-1.37193));
  return round(fma(fma(square, q, vec4<f32>(24.1738)), q, vec4<f32>(-126.567)));
}

/// Twice the numbers of E2M1: 0, 1, 2, 3, 4, 6, 8 and 12, and a sign.
fn doubled_e2m1(codes: vec4<u32>) -> vec4<f32> {
  let magnitudes = vec4<f32>((vec4<u32>(0xc8643210u) >> ((codes & vec4<u32>(7u)) * 4u)) & vec4<u32>(15u));
  return select(magnitudes, -magnitudes, codes > vec4<u32>(7u));
}

fn values_of(codes: u32, line: vec2<f32>) -> vec4<f32> {
  let each = vec4<u32>(codes, codes >> 8u, codes >> 16u, codes >> 24u) & vec4<u32>(255u);
  var q = vec4<f32>(each);
  if (UNEVEN) {
    q = uneven(q);
  }
  if (E2M1) {
    q = doubled_e2m1(each);
  }
  return fma(q, vec4<f32>(line.x), vec4<f32>(line.y));
}

/// Vec4s of a word.
const IN_WORD: u32 = 8u / LOW;

/// The `part`-th vec4 of a unit, by its word.
fn part_values(word: u32, part: u32, s: Scale) -> vec4<f32> {
  let low = (word >> (part % IN_WORD * LOW)) & (((1u << LOW) - 1u) * 0x01010101u);
  return values_of(low | high_bits(s, part), line(s, part >> 2u));
}

fn unit_values(words: vec4<u32>, s: Scale) -> Unit {
  var values: Unit;
  for (var part = 0u; part < 8u; part++) {
    values[part] = part_values(words[part / IN_WORD], part, s);
  }
  return values;
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_part(index: u32, part: u32, s: Scale) -> vec4<f32> {
  return part_values(weight[index][part / IN_WORD], part, s);
}
