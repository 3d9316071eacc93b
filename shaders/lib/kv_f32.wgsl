// KV cache elements as f32: a unit is 4 consecutive elements of a vector (a head's key or value, a token's latent). No scales: see
// kv_q8.wgsl, whose interface this is.
alias KvUnit = vec4<f32>;
const KV_SCALED: bool = false;

fn kv_stored_units(units: u32) -> u32 {
  return units;
}

fn kv_scale_unit(units: u32, unit: u32) -> u32 {
  return unit;
}

fn kv_scale(scales: KvUnit, unit: u32) -> f32 {
  return 1.0;
}

fn kv_unpack(unit: KvUnit, scale: f32) -> vec4<f32> {
  return unit;
}

fn kv_pack(values: vec4<f32>, scale: f32) -> KvUnit {
  return values;
}

fn kv_pack_scales(first: f32, second: f32) -> KvUnit {
  return KvUnit();
}

fn kv_levels(values: vec4<f32>, scale: f32) -> vec4<f32> {
  return values;
}

fn kv_scale_choice(largest: f32, choice: u32) -> f32 {
  return 1.0;
}

fn kv_wide_units(units: u32) -> u32 {
  return units;
}

fn kv_pack_wide(values: vec4<f32>, which: u32) -> KvUnit {
  return kv_pack(values, 1.0);
}

fn kv_unpack_wide(first: KvUnit, second: KvUnit) -> vec4<f32> {
  return kv_unpack(first, 1.0);
}
