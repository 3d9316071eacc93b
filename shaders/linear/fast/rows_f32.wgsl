// Rows in f32, for bytes.wgsl, which rounds each block that it stages.

alias Rows = vec4<f32>;
alias RowBlock = array<vec4<f32>, 8>;

fn row_block(place: Place, row: u32, base4: u32, columns: Columns) -> RowBlock {
  var own = RowBlock();
  for (var part = 0u; part < 8u; part++) {
    own[part] = x_at(place, row, base4 + part, columns);
  }
  return own;
}

fn bytes_of(own: RowBlock) -> ByteBlock {
  return byte_block(own);
}
