// How an expert's output is written. The kernel declares `out: array<f32>` and EXPERT_PARAMS (experts.ts) as `params`.

/// The expert's weight is gate tiles, then up tiles: out = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
const SWIGLU: bool = false; // variant

/// exp only of numbers <= 0, so that it can't overflow.
fn silu(g: f32) -> f32 {
  let e = exp(-abs(g));
  return g * select(e, 1.0, g >= 0.0) / (1.0 + e);
}

/// `pair` = row * top_k + slot. `value` is the sum, or with SWIGLU that of up; without it, `gate` is ignored.
fn write_output(pair: u32, n: u32, gate: f32, value: f32) {
  if (n >= params.out_features) {
    return;
  }
  var result = value;
  if (SWIGLU) {
    result = silu(gate) * value;
  }
  out[pair * params.out_stride + n] = result;
}
