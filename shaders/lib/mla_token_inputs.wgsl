// What mla_token.wgsl reads, of the bindings q, kv_a and norm_weight.

// A head's query: its plain units, then its rotary ones.
fn load_q(row: u32, head: u32, unit: u32) -> vec4<f32> {
  return q[row * params.q_units + params.q_start + head * (params.nope_units + params.rope_units) + unit];
}

fn load_kv(unit: u32) -> vec4<f32> {
  return kv_a[unit];
}

fn latent_weight(unit: u32) -> vec4<f32> {
  return norm_weight[unit];
}
