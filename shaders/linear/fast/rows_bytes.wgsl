// Rows that lie in bytes (write_bytes.wgsl), for bytes.wgsl: nothing is left to round.

alias Rows = vec4<u32>;
alias RowBlock = ByteBlock;

/// For weights that are multiplied by themselves, which these aren't.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return vec4<f32>();
}

fn row_block(place: Place, row: u32, base4: u32, columns: Columns) -> RowBlock {
  var own = RowBlock();
  if (place.row + row < params.rows && base4 < columns.end4) {
    let at = (place.row + row) * row_vec4s(params.x_stride4);
    let i = (base4 - params.x_start4) / 8u;
    own.words[0] = x[at + 2u * i];
    own.words[1] = x[at + 2u * i + 1u];
    own.scale = bitcast<f32>(x[at + params.x_stride4 / 4u + i / 4u][i % 4u]);
  }
  return own;
}

fn bytes_of(own: RowBlock) -> ByteBlock {
  return own;
}
