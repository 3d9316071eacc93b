// Attention of each row to itself and the rows shortly before it, by what they are and how far back they lie.
//
//   s[t][h][j] = sum_d q[t][h][d] * query_scale * softplus(scale[d]) * (k[t - j][h][d] * key_scale + relative[j][h][d]), j < KEYS, j <= t
//   out[t][h] = sum_j softmax_j(cap * tanh(s[t][h][j] / cap)) * v[t - j][h]
//   SOFTENED: with scale[d] in place of softplus(scale[d])
//
// x:        [rows][x_stride] f32: q, k and v side by side, each [heads][DIM]
// relative: [KEYS][relative_stride] f32, [heads][DIM] of it, by distance
// scale:    [DIM] f32
// out:      [rows][out_stride] f32, [heads][DIM] of it; elements beyond are never written
//
// Grid: x = head, y = row. Joined after softplus.wgsl and tanh.wgsl. Sums go by element, and by distance.
// DIM, KEYS, SOFTENED: from the problem. THREADS: chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing.

const DIM: u32 = 128u; // variant
const KEYS: u32 = 12u; // variant
const SOFTENED: bool = false; // variant
const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> relative: array<f32>;
@group(0) @binding(2) var<storage, read> scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

struct Params {
  // heads * DIM
  width: u32,
  x_stride: u32,
  relative_stride: u32,
  out_stride: u32,
  query_scale: f32,
  key_scale: f32,
  cap: f32,
}
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> scores: array<f32, KEYS>;

fn score(row: u32, head: u32, distance: u32) -> f32 {
  let query = row * params.x_stride + head * DIM;
  let key = (row - distance) * params.x_stride + params.width + head * DIM;
  let place = distance * params.relative_stride + head * DIM;
  var sum = 0.0;
  for (var d = 0u; d < DIM; d++) {
    var factor = scale[d];
    if (!SOFTENED) {
      factor = softplus(factor);
    }
    sum = fma(x[query + d] * params.query_scale * factor, fma(x[key + d], params.key_scale, relative[place + d]), sum);
  }
  return params.cap * tanh4(vec4<f32>(sum / params.cap)).x;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group.x;
  let row = group.y;
  let seen = min(row + 1u, KEYS);
  for (var turn = 0u; turn < (KEYS + THREADS - 1u) / THREADS; turn++) {
    let j = turn * THREADS + thread;
    if (j < seen) {
      scores[j] = score(row, head, j);
    }
  }
  workgroupBarrier();
  var most = scores[0];
  for (var j = 1u; j < KEYS; j++) {
    if (j < seen) {
      most = max(most, scores[j]);
    }
  }
  var total = 0.0;
  for (var j = 0u; j < KEYS; j++) {
    if (j < seen) {
      total += exp(scores[j] - most);
    }
  }
  for (var turn = 0u; turn < (DIM + THREADS - 1u) / THREADS; turn++) {
    let d = turn * THREADS + thread;
    if (d < DIM) {
      var sum = 0.0;
      for (var j = 0u; j < KEYS; j++) {
        if (j < seen) {
          let value = x[(row - j) * params.x_stride + 2u * params.width + head * DIM + d];
          sum = fma(exp(scores[j] - most) / total, value, sum);
        }
      }
      out[row * params.out_stride + head * DIM + d] = sum;
    }
  }
}
