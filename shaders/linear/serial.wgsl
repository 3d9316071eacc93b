// The contraction of one invocation on a software adapter: 4 outputs x SERIAL_ROWS rows. Such adapters pay dearly for barriers,
// for indexed private arrays, for every load, and for compiling long shaders: so everything is in named variables, and the
// loop over a unit's vec4s has a bound that no compiler can unroll.
//
// The kernel declares the bindings weight and scale, `params` (LINEAR_PARAMS in problem.ts), load_x, and SERIAL_ROWS (1 or 2).

const ALIGNED: bool = true; // variant
const TREE_LEVELS: u32 = 0u; // variant

/// Of row first_row (first column) and the one behind it.
alias Summed = mat2x4<f32>;

/// Outputs of an invocation: lanes `lane`, lane + 8, lane + 16 and lane + 24 of a tile.
const SERIAL_STEP: u32 = 8u;

fn horizontal(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> vec4<f32> {
  return vec4<f32>((a.x + a.y) + (a.z + a.w), (b.x + b.y) + (b.z + b.w), (c.x + c.y) + (c.z + c.w), (d.x + d.y) + (d.z + d.w));
}

/// Sums of a segment for rows first_row (first column) and first_row + 1: its units in order, (x + y) + (z + w) of their vec4.
fn contract_segment(segment: u32, tile: u32, lane: u32, first_row: u32) -> mat2x4<f32> {
  let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
  let end = segment_start(segment + 1u, params.model_in_features, params.segment_total, params.segment_align);
  let last_unit = (end + UNIT - 1u) / UNIT;
  var a0 = vec4<f32>();
  var b0 = vec4<f32>();
  var c0 = vec4<f32>();
  var d0 = vec4<f32>();
  var a1 = vec4<f32>();
  var b1 = vec4<f32>();
  var c1 = vec4<f32>();
  var d1 = vec4<f32>();
  for (var u = start / UNIT; u < last_unit; u++) {
    let at_a = (tile * params.units + u - params.first_unit) * 32u + lane;
    let at_b = at_a + SERIAL_STEP;
    let at_c = at_b + SERIAL_STEP;
    let at_d = at_c + SERIAL_STEP;
    let scale_a = unit_scale(at_a);
    let scale_b = unit_scale(at_b);
    let scale_c = unit_scale(at_c);
    let scale_d = unit_scale(at_d);
    for (var part = 0u; part < params.unit_vec4s; part++) {
      let at_k4 = u * UNIT4 + part;
      if (!ALIGNED && (at_k4 < start / 4u || at_k4 >= (end + 3u) / 4u)) {
        continue;
      }
      let wa = load_part(at_a, part, scale_a);
      let wb = load_part(at_b, part, scale_b);
      let wc = load_part(at_c, part, scale_c);
      let wd = load_part(at_d, part, scale_d);
      let v0 = load_x(first_row, at_k4);
      a0 = fma(wa, v0, a0);
      b0 = fma(wb, v0, b0);
      c0 = fma(wc, v0, c0);
      d0 = fma(wd, v0, d0);
      if (SERIAL_ROWS == 2u) {
        let v1 = load_x(first_row + 1u, at_k4);
        a1 = fma(wa, v1, a1);
        b1 = fma(wb, v1, b1);
        c1 = fma(wc, v1, c1);
        d1 = fma(wd, v1, d1);
      }
    }
  }
  return mat2x4<f32>(horizontal(a0, b0, c0, d0), horizontal(a1, b1, c1, d1));
}

fn write_segments_of(segment: u32, row: u32, n: u32, sums: vec4<f32>) {
  if (row >= params.rows) {
    return;
  }
  for (var o = 0u; o < 4u; o++) {
    if (n + o * SERIAL_STEP < params.out_features) {
      write_segment(segment, row, n + o * SERIAL_STEP, sums[o]);
    }
  }
}

/// Sums of all segments, in a tree (lib/tree_sum.wgsl); with SEGMENTS_OUT each is written instead.
fn contract(tile: u32, lane: u32, first_row: u32) -> mat2x4<f32> {
  var tree = Tree();
  var total = mat2x4<f32>();
  for (var s = 0u; s < params.segment_count; s++) {
    let sums = contract_segment(params.segment_first + s, tile, lane, first_row);
    if (SEGMENTS_OUT) {
      write_segments_of(s, first_row, tile * 32u + lane, sums[0]);
      if (SERIAL_ROWS == 2u) {
        write_segments_of(s, first_row + 1u, tile * 32u + lane, sums[1]);
      }
    } else {
      total = tree_sum(&tree, s, 0u, s + 1u < params.segment_count, sums);
    }
  }
  return total;
}
