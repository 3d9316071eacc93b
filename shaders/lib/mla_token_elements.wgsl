// What mla_token.wgsl writes, to the binding `out: array<f32>`.

fn write_q_abs(unit: u32, value: vec4<f32>) {
  out[unit * 4u] = value.x;
  out[unit * 4u + 1u] = value.y;
  out[unit * 4u + 2u] = value.z;
  out[unit * 4u + 3u] = value.w;
}
