// Packed weights on hardware adapters (contract.wgsl): a unit's values have their scale already. Units are of weights_f32.wgsl,
// weights_f16.wgsl or weights_kept.wgsl.

alias Sum = vec2<f32>;

/// sum + w * v by fma, x and z of each vec4 to one element of the sum, y and w to the other, in ascending k.
fn unit_add(sum: Sum, w: Unit, d: Scale, v: Unit) -> Sum {
  var result = sum;
  for (var i = 0u; i < PIECE4; i++) {
    result = fma(w[i].zw, v[i].zw, fma(w[i].xy, v[i].xy, result));
  }
  return result;
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_piece(index: u32, piece: u32) -> Unit {
  return unit_values(piece_words(weight[index], piece), piece_scale(unit_scale(index), piece));
}

fn sum_total(sum: Sum) -> f32 {
  return sum.x + sum.y;
}

fn stage_units(first_row: u32, thread: u32) {}
