// How a linear kernel writes an output. Joined after tanh.wgsl, gelu.wgsl and bias_shared.wgsl or bias_rows.wgsl. The kernel declares
// `bias: array<f32>`, `out: array<f32>` and the params rows, out_stride, out_offset, out_scale.

const BIAS: bool = false; // variant
const RESIDUAL: bool = false; // variant
// What is written is gelu(out).
const GELU_OUT: bool = false; // variant
// 0: none.
const OUT_CAP: f32 = 0.0; // variant

/// out[row][n] (+)= (value + bias[n]) * out_scale; the product and what it is added to are rounded once (fma). With a cap, what
/// is written is OUT_CAP * tanh(out / OUT_CAP).
fn write_output(row: u32, n: u32, value: f32) {
  let at = row * params.out_stride + params.out_offset + n;
  var result = value;
  if (BIAS) {
    result += bias[bias_at(row, n)];
  }
  if (RESIDUAL) {
    out[at] = fma(result, params.out_scale, out[at]);
  } else if (GELU_OUT) {
    out[at] = gelu(result * params.out_scale);
  } else if (OUT_CAP > 0.0) {
    out[at] = OUT_CAP * tanh4(vec4<f32>(result * params.out_scale / OUT_CAP)).x;
  } else {
    out[at] = result * params.out_scale;
  }
}
