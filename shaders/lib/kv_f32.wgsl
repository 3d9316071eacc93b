// KV cache elements as f32: a unit is 4 consecutive dims.
alias KvUnit = vec4<f32>;

fn kv_unpack(unit: KvUnit) -> vec4<f32> {
  return unit;
}

fn kv_pack(values: vec4<f32>) -> KvUnit {
  return values;
}
