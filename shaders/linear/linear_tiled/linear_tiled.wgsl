// A linear layer for many rows (prompt tokens): out = x W^T, for hardware adapters.
//
//   out[r][n] (+)= sum_s sum_{k in segment s} W[n][k] x[r][k] + bias[n]
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = silu(gate) * up (linear/swiglu.wgsl)
//
// x:      [rows][x_stride4 * 4] f32; a rank's slice starts at element 4 * x_start4 of the contraction
// weight: packed tiles of 32 output rows (pack.ts), 16-byte units; SWIGLU: tiles of gate rows, then as many of up rows
// scale:  f16 scales of q8 and q4
// bias:   [out_features] f32 (SWIGLU: [gate padded to 32, then up])
// out:    [rows][out_stride] f32, or [segment_count][rows][out_stride] with SEGMENTS_OUT; elements from out_features on are
//         never written
//
// Grid: x = tile of OUTS outputs, y = tile of ROW_TILE rows. A workgroup stages 32 columns of its weights and rows at a time
// in workgroup memory; an invocation computes 4 outputs x 4 rows, each product by fma in ascending k within a segment, then
// the segments in a tree (lib/tree_sum.wgsl): the order depends on nothing but the segments.
//
// OUT_TILE, ROW_TILE: 32 or 64, chosen by the plan from the problem's size; PREFETCH: the next 32 columns are asked for before these
// are used. They change no bit. ALIGNED: every segment starts at a multiple of 32 columns. SWIGLU: from the problem.
// Empty input: rows = 0 dispatches nothing; an empty segment adds 0.

const OUT_TILE: u32 = 64u; // variant
const ROW_TILE: u32 = 64u; // variant
const ALIGNED: bool = true; // variant
const PREFETCH: bool = true; // variant
const SWIGLU: bool = false; // variant
const TREE_LEVELS: u32 = 0u; // variant

alias Summed = mat4x4<f32>;

/// vec4s of 32 columns.
const DEPTH4: u32 = 8u;
/// Invocations along the outputs and along the rows; each has 4 of either, this far apart.
const OUT_STEP: u32 = OUT_TILE / 4u;
const ROW_STEP: u32 = ROW_TILE / 4u;
const THREADS: u32 = OUT_STEP * ROW_STEP;
/// Outputs of a tile. With SWIGLU its first half is of gate, the second of up.
const OUTS: u32 = select(OUT_TILE, OUT_TILE / 2u, SWIGLU);
/// What a thread stages of each.
const WEIGHT_LOADS: u32 = DEPTH4 * OUT_TILE / THREADS;
const ROW_LOADS: u32 = DEPTH4 * ROW_TILE / THREADS;

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

/// Columns of the weights and rows that are staged together, 32 from 4 * base4 on; zero outside [start4, end4).
struct Columns {
  base4: u32,
  start4: u32,
  end4: u32,
}

/// The `i`-th vec4 of the weights' tile.
fn fetch_weight(i: u32, columns: Columns, first_n: u32) -> vec4<f32> {
  let column = i % OUT_TILE;
  let n = first_n + column % OUTS;
  var packed_tile = n / 32u;
  if (SWIGLU && column >= OUTS) {
    packed_tile += (params.out_features + 31u) / 32u;
  }
  let at_k4 = columns.base4 + i / OUT_TILE;
  if (n < params.out_features && (ALIGNED || (at_k4 >= columns.start4 && at_k4 < columns.end4))) {
    let index = (packed_tile * params.units + at_k4 / UNIT4 - params.first_unit) * 32u + n % 32u;
    return load_part(index, at_k4 % UNIT4, unit_scale(index));
  }
  return vec4<f32>();
}

/// The `i`-th vec4 of the rows' tile.
fn fetch_row(i: u32, columns: Columns, top_row: u32) -> vec4<f32> {
  let row = top_row + i / DEPTH4;
  let at_k4 = columns.base4 + i % DEPTH4;
  if (row < params.rows && at_k4 >= columns.start4 && at_k4 < columns.end4) {
    return load_x(row, at_k4);
  }
  return vec4<f32>();
}

fn fetch_weights(columns: Columns, first_n: u32, thread: u32) -> array<vec4<f32>, WEIGHT_LOADS> {
  var fetched = array<vec4<f32>, WEIGHT_LOADS>();
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    fetched[load] = fetch_weight(load * THREADS + thread, columns, first_n);
  }
  return fetched;
}

fn fetch_rows(columns: Columns, top_row: u32, thread: u32) -> array<vec4<f32>, ROW_LOADS> {
  var fetched = array<vec4<f32>, ROW_LOADS>();
  for (var load = 0u; load < ROW_LOADS; load++) {
    fetched[load] = fetch_row(load * THREADS + thread, columns, top_row);
  }
  return fetched;
}

fn stage_row(i: u32, values: vec4<f32>) {
  let k4 = i % DEPTH4;
  row_tile[k4 * ROW_TILE + ((i / DEPTH4) ^ k4)] = values;
}

/// Stages what was fetched.
fn stage(weights: array<vec4<f32>, WEIGHT_LOADS>, rows: array<vec4<f32>, ROW_LOADS>, thread: u32) {
  for (var load = 0u; load < WEIGHT_LOADS; load++) {
    weight_tile[load * THREADS + thread] = weights[load];
  }
  for (var load = 0u; load < ROW_LOADS; load++) {
    stage_row(load * THREADS + thread, rows[load]);
  }
}

/// Fetches and stages one vec4 at a time.
fn stage_slowly(columns: Columns, first_n: u32, top_row: u32, thread: u32) {
  var i = thread;
  for (var left = min(WEIGHT_LOADS, arrayLength(&weight)); left > 0u; left--) {
    weight_tile[i] = fetch_weight(i, columns, first_n);
    i += THREADS;
  }
  i = thread;
  for (var left = min(ROW_LOADS, arrayLength(&weight)); left > 0u; left--) {
    stage_row(i, fetch_row(i, columns, top_row));
    i += THREADS;
  }
}

fn write_row(segment: u32, row: u32, n: u32, sums: vec4<f32>) {
  if (row >= params.rows) {
    return;
  }
  for (var o = 0u; o < OUTS / OUT_STEP; o++) {
    let at = n + o * OUT_STEP;
    if (at < params.out_features) {
      if (SEGMENTS_OUT) {
        write_segment(segment, row, at, sums[o]);
      } else if (SWIGLU) {
        write_swiglu(row, at, sums[o], sums[o + 2u]);
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
  let first_n = group.x * OUTS;
  let top_row = group.y * ROW_TILE;
  let o = thread % OUT_STEP;
  let r = thread / OUT_STEP;

  var tree = Tree();
  var totals = mat4x4<f32>();
  var s = 0u;
  for (var segments = params.segment_count; segments > 0u; segments--) {
    let segment = params.segment_first + s;
    let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
    let end = segment_start(segment + 1u, params.model_in_features, params.segment_total, params.segment_align);
    let end4 = (end + 3u) / 4u;
    var sums0 = vec4<f32>();
    var sums1 = vec4<f32>();
    var sums2 = vec4<f32>();
    var sums3 = vec4<f32>();
    var columns = Columns(start / 32u * DEPTH4, start / 4u, end4);
    var weights = array<vec4<f32>, WEIGHT_LOADS>();
    var rows = array<vec4<f32>, ROW_LOADS>();
    if (PREFETCH) {
      weights = fetch_weights(columns, first_n, thread);
      rows = fetch_rows(columns, top_row, thread);
    }
    for (var left = steps(columns.base4, end4, DEPTH4); left > 0u; left--) {
      if (PREFETCH) {
        stage(weights, rows, thread);
      } else {
        stage_slowly(columns, first_n, top_row, thread);
      }
      workgroupBarrier();
      columns.base4 += DEPTH4;
      if (PREFETCH && left > 1u) {
        weights = fetch_weights(columns, first_n, thread);
        rows = fetch_rows(columns, top_row, thread);
      }
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
    } else {
      totals = tree_sum(&tree, s, 0u, segments > 1u, sums);
    }
    s++;
  }
  if (!SEGMENTS_OUT) {
    write_rows(0u, top_row + r, first_n + o, totals);
  }
}
