// A linear layer for many rows (prompt tokens): out = x W^T, for hardware adapters.
//
//   out[r][n] (+)= sum_s sum_{k in segment s} W[n][k] x[r][k] + bias[n]
//
// x:      [rows][x_stride4 * 4] f32; a rank's slice starts at element 4 * x_start4 of the contraction
// weight: packed tiles of 32 output rows (pack.ts), 16-byte units
// scale:  f16 scales of q8 and q4
// bias:   [out_features] f32
// out:    [rows][out_stride] f32, or [segment_count][rows][out_stride] with SEGMENTS_OUT; elements from out_features on are
//         never written
//
// Grid: x = tile of OUT_TILE outputs, y = tile of ROW_TILE rows. A workgroup stages 32 columns of its weights and rows at a time
// in workgroup memory; an invocation computes 4 outputs x 4 rows, each product by fma in ascending k within a segment, then
// the segments in order: the order depends on nothing but the segments.
//
// OUT_TILE, ROW_TILE: 32 or 64, chosen by the plan from the problem's size; change no bit. ALIGNED: every segment starts at a
// multiple of 32 columns.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const OUT_TILE: u32 = 64u; // variant
const ROW_TILE: u32 = 64u; // variant
const ALIGNED: bool = true; // variant

/// vec4s of 32 columns.
const DEPTH4: u32 = 8u;
/// Invocations along the outputs and along the rows; each has 4 of either, this far apart.
const OUT_STEP: u32 = OUT_TILE / 4u;
const ROW_STEP: u32 = ROW_TILE / 4u;
const THREADS: u32 = OUT_STEP * ROW_STEP;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  model_in_features: u32,
  units: u32,
  first_unit: u32,
  unit_vec4s: u32,
  x_stride4: u32,
  x_start4: u32,
  out_stride: u32,
  out_offset: u32,
  segment_total: u32,
  segment_align: u32,
  segment_first: u32,
  segment_count: u32,
  eps: f32,
  out_scale: f32,
}
@group(0) @binding(5) var<uniform> params: Params;

/// [k4][output] and [k4][row ^ k4]: the exclusive or keeps the stores of one row off each other's memory banks.
var<workgroup> weight_tile: array<vec4<f32>, DEPTH4 * OUT_TILE>;
var<workgroup> row_tile: array<vec4<f32>, DEPTH4 * ROW_TILE>;

/// sum + dot(a, b) by fma in component order.
fn fma_dot(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

/// sums + 4 outputs (a .. d) x one row.
fn fma_outputs(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, v: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(fma_dot(a, v, sums.x), fma_dot(b, v, sums.y), fma_dot(c, v, sums.z), fma_dot(d, v, sums.w));
}

/// Stages columns 4 * base4 .. 4 * base4 + 31, zero outside [start4, end4).
fn stage(base4: u32, start4: u32, end4: u32, first_n: u32, top_row: u32, thread: u32) {
  for (var i = thread; i < DEPTH4 * OUT_TILE; i += THREADS) {
    let n = first_n + i % OUT_TILE;
    let at_k4 = base4 + i / OUT_TILE;
    var values = vec4<f32>();
    if (n < params.out_features && (ALIGNED || (at_k4 >= start4 && at_k4 < end4))) {
      let index = ((n / 32u) * params.units + at_k4 / UNIT4 - params.first_unit) * 32u + n % 32u;
      values = load_part(index, at_k4 % UNIT4, unit_scale(index));
    }
    weight_tile[i] = values;
  }
  for (var i = thread; i < DEPTH4 * ROW_TILE; i += THREADS) {
    let row = top_row + i / DEPTH4;
    let k4 = i % DEPTH4;
    var values = vec4<f32>();
    if (row < params.rows && base4 + k4 >= start4 && base4 + k4 < end4) {
      values = load_x(row, base4 + k4);
    }
    row_tile[k4 * ROW_TILE + ((i / DEPTH4) ^ k4)] = values;
  }
}

fn write_row(segment: u32, row: u32, n: u32, sums: vec4<f32>) {
  if (row >= params.rows) {
    return;
  }
  for (var o = 0u; o < 4u; o++) {
    let at = n + o * OUT_STEP;
    if (at < params.out_features) {
      if (SEGMENTS_OUT) {
        write_segment(segment, row, at, sums[o]);
      } else {
        write_output(row, at, sums[o]);
      }
    }
  }
}

fn write_rows(segment: u32, row: u32, n: u32, sums: mat4x4<f32>) {
  write_row(segment, row, n, sums[0]);
  write_row(segment, row + ROW_STEP, n, sums[1]);
  write_row(segment, row + 2u * ROW_STEP, n, sums[2]);
  write_row(segment, row + 3u * ROW_STEP, n, sums[3]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let first_n = group.x * OUT_TILE;
  let top_row = group.y * ROW_TILE;
  let o = thread % OUT_STEP;
  let r = thread / OUT_STEP;

  var totals = mat4x4<f32>();
  for (var s = 0u; s < params.segment_count; s++) {
    let segment = params.segment_first + s;
    let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
    let end = segment_start(segment + 1u, params.model_in_features, params.segment_total, params.segment_align);
    let end4 = (end + 3u) / 4u;
    var sums0 = vec4<f32>();
    var sums1 = vec4<f32>();
    var sums2 = vec4<f32>();
    var sums3 = vec4<f32>();
    for (var base4 = start / 32u * DEPTH4; base4 < end4; base4 += DEPTH4) {
      stage(base4, start / 4u, end4, first_n, top_row, thread);
      workgroupBarrier();
      for (var k4 = 0u; k4 < DEPTH4; k4++) {
        let first = k4 * OUT_TILE + o;
        let a = weight_tile[first];
        let b = weight_tile[first + OUT_STEP];
        let c = weight_tile[first + 2u * OUT_STEP];
        let d = weight_tile[first + 3u * OUT_STEP];
        sums0 = fma_outputs(a, b, c, d, row_tile[k4 * ROW_TILE + (r ^ k4)], sums0);
        sums1 = fma_outputs(a, b, c, d, row_tile[k4 * ROW_TILE + ((r + ROW_STEP) ^ k4)], sums1);
        sums2 = fma_outputs(a, b, c, d, row_tile[k4 * ROW_TILE + ((r + 2u * ROW_STEP) ^ k4)], sums2);
        sums3 = fma_outputs(a, b, c, d, row_tile[k4 * ROW_TILE + ((r + 3u * ROW_STEP) ^ k4)], sums3);
      }
      workgroupBarrier();
    }
    let sums = mat4x4<f32>(sums0, sums1, sums2, sums3);
    if (SEGMENTS_OUT) {
      write_rows(s, top_row + r, first_n + o, sums);
    } else if (s == 0u) {
      totals = sums;
    } else {
      totals += sums;
    }
  }
  if (!SEGMENTS_OUT) {
    write_rows(0u, top_row + r, first_n + o, totals);
  }
}
