// Packed weights on hardware adapters (contract.wgsl): a unit's values have their scale already. Units are of weights_f32.wgsl,
// weights_f16.wgsl or weights_kept.wgsl.

alias Sum = vec2<f32>;

/// sum + w * v by fma, x and z of each vec4 to one element of the sum, y and w to the other, in ascending k.
fn unit_add(sum: Sum, w: Unit, d: Scale, v: Unit) -> Sum {
  var result = sum;
  for (var i = 0u; i < UNIT4; i++) {
    result = fma(w[i].zw, v[i].zw, fma(w[i].xy, v[i].xy, result));
  }
  return result;
}

fn sum_total(sum: Sum) -> f32 {
  return sum.x + sum.y;
}

fn stage_units(first_row: u32, thread: u32) {}
