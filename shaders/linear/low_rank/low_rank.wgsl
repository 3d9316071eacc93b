// What low-rank adapters add to a matrix's outputs, W x + B A x: each row by the adapter of its slot, of which there may be none.
//
//   DOWN:  out[s][r][j] = sum_{k in segment s} A[j][k] x[r][k]
//   ADDS:  out[s][r][n] += sum_j B[n][j] x[s][r][first[n] + j]
//   LOOKUP: out[r][j] = A[j][ids[r] & id_mask], of DOWN: x has a one there, and zeros; 0 for ids beyond A's columns
//   else:  out[r][n] = bias[n] + sum_j B[n][j] x[r][first[n] + j], what a linear kernel adds as the bias of a row
//
// GROUPED: instead of segments, a product each of parts of a row of x (DOWN), and of out (ADDS), that lie `group_stride` apart:
// with columns of A of each, or rows of B, side by side, or with the same ones (factor_group 0).
//
// A row without an adapter isn't written, but by the last, which gives it bias[n], or -0, which changes no sum.
//
// EXPERTS: a row stands for top_k of its experts, each with a product of its own: what is said of rows holds for (row, slot)s, of which
// x_divisor share a row of x. There is an entry for each expert of an adapter, and biases of each.
//
// x:        f32 [rows][x_stride], from element x_offset on the rank's slice of the contraction; otherwise what DOWN gave
// factors:  f32; of an adapter from element table.x on A [width][factor_stride]; from table.y on first [factor_stride] and then
//           B^T [rank][factor_stride]
// table:    by the adapter's place: (where A is, where B is, width of A x, most elements of it that an output reads)
// row_info: [rows]: (position, slot)
// ids:      u32 [rows][top_k], experts', of which expert_first .. expert_first + expert_count - 1 are here; LOOKUP: [rows], tokens'
// places:   by slot: of its adapter; 0xffffffff without one
// bias:     [out_features] f32
// out:      f32 [segment_count][rows][out_stride]; ADDS and GROUPED: [rows][out_stride]
//
// Grid: x = an output with DOWN, otherwise 64; y = row, z = segment. With DOWN 64 threads share a contraction: thread t takes the
// elements t, t + 64, ... of the segment in order; then halves of the threads are added.
// Empty input: rows = 0 dispatches nothing.

const DOWN: bool = true; // variant
const ADDS: bool = false; // variant
const BIAS: bool = false; // variant
const GROUPED: bool = false; // variant
const EXPERTS: bool = false; // variant
const LOOKUP: bool = false; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> factors: array<f32>;
@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> places: array<u32>;
@group(0) @binding(5) var<storage, read> ids: array<u32>;
@group(0) @binding(6) var<storage, read> bias: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  factor_stride: u32,
  model_in_features: u32,
  segment_total: u32,
  segment_align: u32,
  segment_first: u32,
  x_stride: u32,
  x_offset: u32,
  out_stride: u32,
  factor_group: u32,
  group_stride: u32,
  top_k: u32,
  x_divisor: u32,
  expert_first: u32,
  expert_count: u32,
  id_mask: u32,
}
@group(0) @binding(8) var<uniform> params: Params;

var<workgroup> partials: array<f32, 64>;

/// Counted from the first one here; experts before it wrap around to large numbers.
fn expert_of(row: u32) -> u32 {
  if (EXPERTS) {
    return ids[row] - params.expert_first;
  }
  return 0u;
}

/// All zeros where the row has no adapter, or one that leaves the matrix as it is.
fn entry_of(row: u32, expert: u32) -> vec4<u32> {
  let slot = row_info[row / params.top_k].y;
  if (slot >= arrayLength(&places)) {
    return vec4<u32>();
  }
  let place = places[slot];
  if (place >= arrayLength(&table) || expert >= params.expert_count) {
    return vec4<u32>();
  }
  let at = place * params.expert_count + expert;
  if (at >= arrayLength(&table)) {
    return vec4<u32>();
  }
  return table[at];
}

/// Where a segment begins in this rank's slice.
fn start_of(segment: u32) -> u32 {
  let start = segment_start(segment, params.model_in_features, params.segment_total, params.segment_align);
  return start - segment_start(params.segment_first, params.model_in_features, params.segment_total, params.segment_align);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y;
  let expert = expert_of(row);
  let entry = entry_of(row, expert);
  let piece = group.z * params.rows * params.top_k + row;
  if (DOWN) {
    if (group.x >= entry.z) {
      return;
    }
    let segment = params.segment_first + group.z;
    var start = vec2<u32>(start_of(segment));
    var length = start_of(segment + 1u) - start.x;
    if (GROUPED) {
      start = group.z * vec2<u32>(params.factor_group, params.group_stride);
      length = params.model_in_features;
    }
    var k = thread;
    let a = entry.x + group.x * params.factor_stride + start.x;
    if (LOOKUP) {
      if (thread == 0u) {
        let token = ids[row] & params.id_mask;
        let value = factors[a + min(token, params.factor_stride - 1u)];
        out[piece * params.out_stride + group.x] = select(0.0, value, token < params.factor_stride);
      }
      return;
    }
    let first = row / params.x_divisor * params.x_stride + params.x_offset + start.y;
    var sum = 0.0;
    for (var left = steps(k, length, 64u); left > 0u; left--) {
      sum = fma(factors[a + k], x[first + k], sum);
      k += 64u;
    }
    partials[thread] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
      if (thread < half) {
        partials[thread] += partials[thread + half];
      }
      workgroupBarrier();
    }
    if (thread == 0u) {
      out[piece * params.out_stride + group.x] = partials[0];
    }
    return;
  }
  let n = group.x * 64u + thread;
  if (n >= params.out_features) {
    return;
  }
  var at = piece * params.out_stride + n;
  if (GROUPED) {
    at = row * params.out_stride + group.z * params.group_stride + n;
  }
  var base = bitcast<f32>(0x80000000u);
  if (ADDS) {
    base = out[at];
  } else if (BIAS && expert < params.expert_count) {
    base = bias[expert * params.out_features + n];
  }
  if (entry.z == 0u) {
    if (!ADDS) {
      out[at] = base;
    }
    return;
  }
  var b = entry.y + group.z * params.factor_group + n;
  var k = piece * params.x_stride + u32(factors[b]);
  var sum = 0.0;
  for (var left = entry.w; left > 0u; left--) {
    b += params.factor_stride;
    sum = fma(factors[b], x[k], sum);
    k++;
  }
  out[at] = base + sum;
}
