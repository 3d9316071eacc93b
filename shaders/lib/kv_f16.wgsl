// KV cache elements as f16 without shader-f16: a unit is 4 consecutive dims as 4 halves, low half first.
alias KvUnit = vec2<u32>;

fn kv_unpack(unit: KvUnit) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(unit.x), unpack2x16float(unit.y));
}

fn kv_pack(values: vec4<f32>) -> KvUnit {
  return vec2<u32>(pack2x16float(values.xy), pack2x16float(values.zw));
}
