// KV cache elements as 8-bit integers: a unit is 4 consecutive elements of a vector (a head's key or value, a token's latent) as 4
// signed bytes, lowest first.
//
//   element = byte * scale,   |byte| <= 127;   a scale for each 8 units (32 elements; the last ones of a vector may be fewer), f16
//
// Scales lie behind the vector's units, as units of their own: two a unit, low half first. The same interface without scales:
// kv_f32.wgsl, kv_f16.wgsl.
alias KvUnit = u32;
const KV_SCALED: bool = true;

// Units that a vector of `units` takes in the cache, scales included.
fn kv_stored_units(units: u32) -> u32 {
  return units + (units + 15u) / 16u;
}

// Which of a vector's units holds the scale of `unit`.
fn kv_scale_unit(units: u32, unit: u32) -> u32 {
  return units + unit / 16u;
}

// The scale of `unit`, from the unit that holds it.
fn kv_scale(scales: KvUnit, unit: u32) -> f32 {
  return unpack2x16float(scales >> ((unit & 8u) << 1u)).x;
}

fn kv_unpack(unit: KvUnit, scale: f32) -> vec4<f32> {
  return vec4<f32>(vec4<i32>(vec4<u32>(unit) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u)) * scale;
}

// The nearest bytes, ties to even.
fn kv_levels(values: vec4<f32>, scale: f32) -> vec4<f32> {
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  return clamp(round(values * inverse), vec4<f32>(-127.0), vec4<f32>(127.0));
}

fn kv_pack(values: vec4<f32>, scale: f32) -> KvUnit {
  let bytes = vec4<u32>(vec4<i32>(kv_levels(values, scale))) & vec4<u32>(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

// Scales that a block of this largest magnitude may have: the least f16 that takes it to at most 127 (f16's largest where none does),
// and KV_SCALES - 1 more, each less than 1% above the one before.
fn kv_scale_choice(largest: f32, choice: u32) -> f32 {
  let wanted = min(largest / 127.0, 65504.0);
  // pack2x16float may round to either neighbour: f32's bits without the last 13, rounded up, the exponent from bias 127 to 15.
  let normal = ((bitcast<u32>(wanted) + 0x1fffu) >> 13u) - (112u << 10u);
  let subnormal = u32(ceil(wanted * 0x1p24));
  let least = select(normal, subnormal, wanted < 0x1p-14);
  return unpack2x16float(min(least + 8u * choice, 0x7bffu)).x;
}

fn kv_pack_scales(first: f32, second: f32) -> KvUnit {
  return pack2x16float(vec2<f32>(first, second));
}

// Elements that are kept in f16 are two units of two: units that `units` of them take, one of the two, and 4 elements of both.
fn kv_wide_units(units: u32) -> u32 {
  return 2u * units;
}

fn kv_pack_wide(values: vec4<f32>, which: u32) -> KvUnit {
  let pair = select(values.xy, values.zw, which == 1u);
  return pack2x16float(select(pair, sign(pair) * 65504.0, abs(pair) > vec2<f32>(65504.0)));
}

fn kv_unpack_wide(first: KvUnit, second: KvUnit) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(first), unpack2x16float(second));
}
