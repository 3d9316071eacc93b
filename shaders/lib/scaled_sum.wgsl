// Packed weights on hardware adapters (contract.wgsl): a unit's products are summed unscaled, and its scale comes once. Units are of
// weights_q8.wgsl, weights_q4.wgsl or weights_mxfp4.wgsl.

alias Sum = f32;

/// sum + d * (w . v), the dot product by fma over the vec4s in order, then (x + y) + (z + w).
fn unit_add(sum: Sum, w: Unit, d: Scale, v: Unit) -> Sum {
  var products = w[0] * v[0];
  for (var i = 1u; i < UNIT4; i++) {
    products = fma(w[i], v[i], products);
  }
  return fma((products.x + products.y) + (products.z + products.w), d, sum);
}

fn sum_total(sum: Sum) -> f32 {
  return sum;
}

fn stage_units(first_row: u32, thread: u32) {}
