// Products of f16 numbers (half.wgsl), summed by fma in f32 in ascending k; needs no feature. The twin of matrix.wgsl.

/// [k4][row ^ k4] and [k4][output], 4 numbers each: the exclusive or keeps the stores of one row off each other's memory banks.
var<workgroup> x_tile: array<vec2<u32>, STAGE4 * ROW_TILE>;
var<workgroup> weight_tile: array<vec2<u32>, STAGE4 * OUT_TILE>;

fn packed(values: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(pack2x16float(values.xy), pack2x16float(values.zw));
}

fn unpacked(words: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn put_x(row: u32, k4: u32, values: vec4<f32>) {
  x_tile[k4 * ROW_TILE + (row ^ k4)] = packed(values);
}

fn put_weight(n: u32, k4: u32, values: vec4<f32>) {
  weight_tile[k4 * OUT_TILE + n] = packed(values);
}

fn multiply(sums: ptr<function, Sums>, quarter: u32, thread: u32) {
  let first = first_held(quarter, thread);
  for (var k4 = 0u; k4 < STAGE4; k4++) {
    var weights = array<vec4<f32>, HELD_OUTS>();
    for (var j = 0u; j < HELD_OUTS; j++) {
      weights[j] = unpacked(weight_tile[k4 * OUT_TILE + first.y + OUT_LANES * j]);
    }
    for (var i = 0u; i < HELD_ROWS; i++) {
      let v = unpacked(x_tile[k4 * ROW_TILE + ((first.x + ROW_LANES * i) ^ k4)]);
      for (var j = 0u; j < HELD_OUTS; j++) {
        let w = weights[j];
        let at = i * HELD_OUTS + j;
        (*sums)[at] = fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, (*sums)[at]))));
      }
    }
  }
}
