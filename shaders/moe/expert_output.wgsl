// How an expert's output is written. The kernel declares `out: array<f32>`, `bias: array<f32>` and EXPERT_PARAMS (experts.ts) as
// `params`.

/// The expert's weight is gate tiles, then up tiles: out = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
const SWIGLU: bool = false; // variant
/// Of gate and up that are matrices by themselves: 0 is gate, 1 is up, whose gates stand in `out`. 2: the matrix is all there is.
const HALF: u32 = 2u; // variant
/// Of a gate: gelu(gate) * up (lib/gelu.wgsl).
const GELU: bool = false; // variant
/// Of a gate: g = min(gate, limit), u = clamp(up, -limit, limit), out = (u + 1) g / (1 + exp(-alpha g)).
const CLAMPED: bool = false; // variant
/// Outputs of a matrix have a bias each, before all else.
const BIASED: bool = false; // variant
/// With BIASED: of each (row, slot) by itself, [rows][top_k][matrices][32 tiles].
const ROW_BIAS: bool = false; // variant

/// exp only of numbers <= 0, so that it can't overflow.
fn silu(g: f32) -> f32 {
  let e = exp(-abs(g));
  return g * select(e, 1.0, g >= 0.0) / (1.0 + e);
}

fn clamped_swiglu(gate: f32, up: f32) -> f32 {
  let g = min(gate, params.limit);
  let u = clamp(up, -params.limit, params.limit);
  let e = exp(-abs(params.alpha * g));
  return (u + 1.0) * (g * (select(e, 1.0, g >= 0.0) / (1.0 + e)));
}

/// `expert`: counted from the shard's first; `matrix`: 1 is up.
fn bias_of(pair: u32, expert: u32, matrix: u32, n: u32) -> f32 {
  let own = select(params.bias_first + expert, pair, ROW_BIAS);
  let tile = select(own * params.matrices + matrix, own * 2u + HALF, HALF < 2u) * params.tiles;
  return bias[tile * 32u + n];
}

/// `pair` = row * top_k + slot; `expert`: counted from the shard's first. `sum` is the matrix's, or with SWIGLU that of up; without it,
/// `gate_sum` is ignored.
fn write_output(pair: u32, expert: u32, n: u32, gate_sum: f32, sum: f32) {
  if (n >= params.out_features) {
    return;
  }
  var gate = gate_sum;
  var value = sum;
  if (BIASED) {
    value += bias_of(pair, expert, params.matrices - 1u, n);
    if (SWIGLU) {
      gate += bias_of(pair, expert, 0u, n);
    }
  }
  let at = pair * params.out_stride + n;
  if (HALF == 1u) {
    gate = out[at];
  }
  var result = value;
  if (SWIGLU || HALF == 1u) {
    if (GELU) {
      result = gelu(gate) * value;
    } else {
      result = silu(gate) * value;
    }
  }
  if ((SWIGLU || HALF == 1u) && CLAMPED) {
    result = clamped_swiglu(gate, value);
  }
  out[at] = result;
}
