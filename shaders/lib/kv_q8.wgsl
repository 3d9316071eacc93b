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
fn kv_pack(values: vec4<f32>, scale: f32) -> KvUnit {
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let bytes = vec4<u32>(vec4<i32>(clamp(round(values * inverse), vec4<f32>(-127.0), vec4<f32>(127.0)))) & vec4<u32>(255u);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

// f16 of the least scale that takes `largest`, a block's largest magnitude, to at most 127; f16's largest where none does.
fn kv_scale_bits(largest: f32) -> u32 {
  let wanted = min(largest / 127.0, 65504.0);
  // pack2x16float may round to either neighbour: f32's bits without the last 13, rounded up, the exponent from bias 127 to 15.
  let normal = ((bitcast<u32>(wanted) + 0x1fffu) >> 13u) - (112u << 10u);
  let subnormal = u32(ceil(wanted * 0x1p24));
  return select(normal, subnormal, wanted < 0x1p-14);
}

// The scales of two blocks by their largest magnitudes.
fn kv_pack_scales(first: f32, second: f32) -> KvUnit {
  return kv_scale_bits(first) | (kv_scale_bits(second) << 16u);
}
