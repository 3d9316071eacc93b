// As delta_rule.wgsl, of the same bits, for compilers for CPUs, which take minutes over unrolled columns and copy at barriers.
//
// Grid: x = ceil(value_heads * value_dim / THREADS), y = row where a run may begin (state_rows.wgsl). state: vec4s of four elements.
// A thread has a column of S and needs no other: four chains over the key's elements, by fma, then (0 + 1) + (2 + 3).
// KEY_DIM: a multiple of 4, ONE_RUN, CORRECTS: from the problem. THREADS: chosen by the plan; changes no bit.
// Empty input: rows = 0 dispatches nothing.

const KEY_DIM: u32 = 128u; // variant
const ONE_RUN: bool = false; // variant
const CORRECTS: bool = true; // variant
const THREADS: u32 = 64u; // variant
const UNITS: u32 = KEY_DIM / 4u;

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> places: array<u32>;
@group(0) @binding(4) var<storage, read_write> state: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  key_heads: u32,
  ratio: u32,
  value_dim: u32,
  stride: u32,
  out_stride: u32,
  units: u32,
}
@group(0) @binding(6) var<uniform> params: Params;

fn four(at: u32) -> vec4<f32> {
  return vec4<f32>(qkv[at], qkv[at + 1u], qkv[at + 2u], qkv[at + 3u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let column = group.x * THREADS + thread;
  let value_heads = params.key_heads * params.ratio;
  var count: u32;
  if (ONE_RUN) {
    count = only_run_length(params.rows);
  } else {
    count = run_length(group.y, params.rows);
  }
  if (column >= value_heads * params.value_dim || count == 0u) {
    return;
  }
  let info = row_info[group.y];
  let head = column / params.value_dim;
  let key_head = head / params.ratio;
  let kept = (places[info.y] * value_heads + head) * UNITS * params.value_dim + column % params.value_dim;
  var s: array<vec4<f32>, UNITS>;
  var i = 0u;
  for (var own = params.units; own >= 1u; own--) {
    let before = state[kept + i * params.value_dim];
    s[i] = select(before, vec4<f32>(), info.x == 0u);
    i += 1u;
  }
  var row = group.y;
  for (var left = count; left >= 1u; left--) {
    let query = row * params.stride + key_head * KEY_DIM;
    let key = query + params.key_heads * KEY_DIM;
    let gate = gates[row * value_heads + head];
    var found = vec4<f32>();
    i = 0u;
    for (var own = params.units; own >= 1u; own--) {
      let faded = s[i] * gate.x;
      s[i] = faded;
      if (CORRECTS) {
        found = fma(faded, four(key + 4u * i), found);
      }
      i += 1u;
    }
    let v = qkv[row * params.stride + 2u * params.key_heads * KEY_DIM + column];
    var missing = v;
    if (CORRECTS) {
      missing -= (found.x + found.y) + (found.z + found.w);
    }
    let d = gate.y * missing;
    var result = vec4<f32>();
    i = 0u;
    for (var own = params.units; own >= 1u; own--) {
      let corrected = fma(four(key + 4u * i), vec4<f32>(d), s[i]);
      s[i] = corrected;
      result = fma(corrected, four(query + 4u * i), result);
      i += 1u;
    }
    out[row * params.out_stride + column] = (result.x + result.y) + (result.z + result.w);
    row += 1u;
  }
  i = 0u;
  for (var own = params.units; own >= 1u; own--) {
    state[kept + i * params.value_dim] = s[i];
    i += 1u;
  }
}
