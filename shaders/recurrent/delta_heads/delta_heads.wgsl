// What linear attention takes of a token: its queries and keys normalised head by head, and each value head's decay and rate.
//
//   q <- q / sqrt(sum q^2 + EPS) * key_dim^-0.5, k <- k / sqrt(sum k^2 + EPS)
//   gates[r][h] = (exp(-rates[h] * dt), sigmoid(b[r][h])), dt = softplus(a[r][h] + dt_bias[h])
//   without CORRECTS: q and k stay, and gates[r][h] = (exp(-rates[h] * dt), dt)      (Mamba-2)
//
// qkv:     [rows][stride] f32: key heads' q, then their k, key_dim each, then v (not touched)
// inputs:  [rows][input_stride] f32 with b at b_offset and a behind it, value_heads each; without CORRECTS a alone
// rates:   [value_heads] f32, above 0; dt_bias: [value_heads] f32
// gates:   [rows][value_heads] (decay, rate) f32
//
// Grid: x = key head, y = row; one workgroup each. The order of a head's sum is rms.wgsl's.
// Value heads of key head h are [h * ratio, (h + 1) * ratio).
// CORRECTS: from the problem. THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; a head of zeros stays one.

const CORRECTS: bool = true; // variant
const THREADS: u32 = 32u; // variant

@group(0) @binding(0) var<storage, read> inputs: array<f32>;
@group(0) @binding(1) var<storage, read> rates: array<f32>;
@group(0) @binding(2) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> qkv: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> gates: array<vec2<f32>>;

struct Params {
  key_heads: u32,
  ratio: u32,
  key_dim: u32,
  stride: u32,
  input_stride: u32,
  b_offset: u32,
  eps: f32,
}
@group(0) @binding(5) var<uniform> params: Params;

fn sum_squares(first: u32, thread: u32) {
  let vec4s = params.key_dim / 4u;
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own > 0u; own--) {
    var partial = 0.0;
    var k = j;
    for (var left = steps(j, vec4s, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, qkv[first + k]);
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
}

fn scale_head(first: u32, thread: u32, scale: f32) {
  var k = thread;
  for (var left = steps(thread, params.key_dim / 4u, THREADS); left > 0u; left--) {
    qkv[first + k] *= scale;
    k += THREADS;
  }
}

fn normalise(group: vec3<u32>, thread: u32) {
  let vec4s = params.key_dim / 4u;
  let width = f32(params.key_dim);
  let row = group.y * (params.stride / 4u);
  let query = row + group.x * vec4s;
  let key = row + (params.key_heads + group.x) * vec4s;
  // 1 / sqrt(sum + EPS) is 1 / sqrt(mean + EPS / width) / sqrt(width).
  sum_squares(query, thread);
  workgroupBarrier();
  let query_scale = rms_scale(width, params.eps / width);
  workgroupBarrier();
  sum_squares(key, thread);
  workgroupBarrier();
  let key_scale = rms_scale(width, params.eps / width);
  scale_head(query, thread, query_scale / width);
  scale_head(key, thread, key_scale / sqrt(width));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  if (CORRECTS) {
    normalise(group, thread);
  }
  let value_heads = params.key_heads * params.ratio;
  var own = thread;
  for (var left = steps(thread, params.ratio, THREADS); left > 0u; left--) {
    let head = group.x * params.ratio + own;
    let b = group.y * params.input_stride + params.b_offset + head;
    let dt = softplus(inputs[b + select(0u, value_heads, CORRECTS)] + dt_bias[head]);
    var rate = dt;
    if (CORRECTS) {
      rate = sigmoid(inputs[b]);
    }
    gates[group.y * value_heads + head] = vec2<f32>(exp(-rates[head] * dt), rate);
    own += THREADS;
  }
}
