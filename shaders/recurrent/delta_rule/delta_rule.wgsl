// Linear attention whose memory S [KEY_DIM][value_dim] of a value head forgets, and corrects itself: the gated delta rule.
//
//   S <- decay S;  d = rate (v - S^T k);  S <- S + k d^T;  out = S^T q              token by token, S = 0 before a sequence's first
//   without CORRECTS: d = rate v                                                    (Mamba-2: C, B and x as q, k and v)
//
// qkv:      [rows][stride] f32: key heads' q, then their k, KEY_DIM each, as delta_heads leaves them, then value heads' v, value_dim each
// gates:    [rows][value_heads] (decay, rate) f32
// row_info: [rows] (position, slot); places: [slots] where a slot's state is
// state:    [places][value_heads][KEY_DIM / 4][value_dim] vec4 f32: neighbouring columns of S side by side
// out:      [rows][out_stride] f32, value heads side by side; inactive rows are never written
//
// Grid: x = ceil(value_heads * value_dim / (THREADS / 4)), y = row where a run may begin (state_rows.wgsl).
// Four threads have a column of S in registers, a chain each: the key's elements 4 i + chain, by fma. Their sums are added through
// workgroup memory, (0 + 1) + (2 + 3): the same bits however rows are cut into steps. Value head h reads key head floor(h / ratio).
// KEY_DIM: a multiple of 4, ONE_RUN, CORRECTS: from the problem. THREADS: chosen by the plan; changes no bit. UNROLLED: loops over a column
// have constant bounds, so that GPUs keep it in registers. CPUs run delta_rule_serial.wgsl.
// Empty input: rows = 0 dispatches nothing.

const KEY_DIM: u32 = 128u; // variant
const ONE_RUN: bool = false; // variant
const CORRECTS: bool = true; // variant
const THREADS: u32 = 64u; // variant
const UNROLLED: bool = false; // variant
const COLUMNS: u32 = THREADS / 4u;
const UNITS: u32 = KEY_DIM / 4u;

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> places: array<u32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>;
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

var<workgroup> run: u32;
var<workgroup> sums: array<f32, 2u * THREADS>;

/// A column's sum of its chains. What is added next goes to the other half: one barrier between a sum's parts is enough.
fn total(half: u32, local: u32, chain: u32, part: f32) -> f32 {
  let at = half * THREADS + 4u * local;
  sums[at + chain] = part;
  workgroupBarrier();
  return (sums[at] + sums[at + 1u]) + (sums[at + 2u] + sums[at + 3u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let chain = thread % 4u;
  let local = thread / 4u;
  let value_heads = params.key_heads * params.ratio;
  let columns = value_heads * params.value_dim;
  if (thread == 0u) {
    if (ONE_RUN) {
      run = only_run_length(params.rows);
    } else {
      run = run_length(group.y, params.rows);
    }
  }
  let count = workgroupUniformLoad(&run);
  if (count == 0u) {
    return;
  }
  let own = group.x * COLUMNS + local;
  let column = min(own, columns - 1u);
  let writes = own < columns;
  let info = row_info[group.y];
  let head = column / params.value_dim;
  let key_head = head / params.ratio;
  let step = 4u * params.value_dim;
  let kept = (places[info.y] * value_heads + head) * UNITS * step + 4u * (column % params.value_dim) + chain;
  let units = select(params.units, UNITS, UNROLLED);
  var s: array<f32, UNITS>;
  var i = 0u;
  for (var left = units; left >= 1u; left--) {
    s[i] = select(state[kept + i * step], 0.0, info.x == 0u);
    i += 1u;
  }
  var row = group.y;
  for (var rows = count; rows >= 1u; rows--) {
    let query = row * params.stride + key_head * KEY_DIM + chain;
    let key = query + params.key_heads * KEY_DIM;
    let gate = gates[row * value_heads + head];
    let v = qkv[row * params.stride + 2u * params.key_heads * KEY_DIM + column];
    var k: array<f32, UNITS>;
    i = 0u;
    for (var left = units; left >= 1u; left--) {
      k[i] = qkv[key + 4u * i];
      i += 1u;
    }
    var found = 0.0;
    i = 0u;
    for (var left = units; left >= 1u; left--) {
      let faded = s[i] * gate.x;
      s[i] = faded;
      if (CORRECTS) {
        found = fma(faded, k[i], found);
      }
      i += 1u;
    }
    var missing = v;
    if (CORRECTS) {
      missing -= total(0u, local, chain, found);
    }
    let d = gate.y * missing;
    var result = 0.0;
    i = 0u;
    for (var left = units; left >= 1u; left--) {
      let corrected = fma(k[i], d, s[i]);
      s[i] = corrected;
      result = fma(corrected, qkv[query + 4u * i], result);
      i += 1u;
    }
    // Without a sum in between, that of the row before lies in the other half.
    let y = total(select(rows % 2u, 1u, CORRECTS), local, chain, result);
    if (writes && chain == 0u) {
      out[row * params.out_stride + column] = y;
    }
    row += 1u;
  }
  if (!writes) {
    return;
  }
  i = 0u;
  for (var left = units; left >= 1u; left--) {
    state[kept + i * step] = s[i];
    i += 1u;
  }
}
