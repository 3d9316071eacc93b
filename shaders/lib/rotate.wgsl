// Rotary embedding of half-split pairs: units of 4 dims, `low` of the first half of what rotates and `high` of the second.
// The kernel declares rope_table: array<vec2<f32>>, (cos, sin) of each pair.

struct Rotated {
  low: vec4<f32>,
  high: vec4<f32>,
}

// `at`: the first of their 4 pairs in rope_table.
fn rotate(low: vec4<f32>, high: vec4<f32>, at: u32) -> Rotated {
  return rotate_each(low, high, vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u));
}

// `at`: each of their 4 pairs in rope_table.
fn rotate_each(low: vec4<f32>, high: vec4<f32>, at: vec4<u32>) -> Rotated {
  let r0 = rope_table[at.x];
  let r1 = rope_table[at.y];
  let r2 = rope_table[at.z];
  let r3 = rope_table[at.w];
  let cosine = vec4<f32>(r0.x, r1.x, r2.x, r3.x);
  let sine = vec4<f32>(r0.y, r1.y, r2.y, r3.y);
  return Rotated(fma(low, cosine, -(high * sine)), fma(high, cosine, low * sine));
}
