// The swiglu epilogue: out[row][n] = silu(gate) * up, silu(g) = g / (1 + exp(-g)); GELU: gelu (gelu.wgsl) for silu.
// Generated rows take silu.wgsl, prompts' rows lib/silu.wgsl.
const GELU: bool = false; // variant

fn write_swiglu(row: u32, n: u32, gate: f32, up: f32) {
  var g = gate;
  var u = up;
  if (BIAS) {
    g += bias[bias_at(row, n)];
    u += bias[bias_at(row, (params.out_features + 31u) / 32u * 32u + n)];
  }
  if (GELU) {
    out[row * params.out_stride + params.out_offset + n] = gelu(g) * u;
  } else {
    out[row * params.out_stride + params.out_offset + n] = silu(g) * u;
  }
}
