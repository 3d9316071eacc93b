// How a linear kernel writes the sum of one segment, where a rank computes some segments of a split contraction. The kernel
// declares `out: array<f32>` and the params rows, out_stride, out_offset.

const SEGMENTS_OUT: bool = false; // variant

/// out[segment][row][n] = value; `segment` counts from this rank's first.
fn write_segment(segment: u32, row: u32, n: u32, value: f32) {
  out[(segment * params.rows + row) * params.out_stride + params.out_offset + n] = value;
}
