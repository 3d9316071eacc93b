// The gated delta rule from a row's projection to its gated output: causal_conv, delta_heads, delta_rule and gated_norm in one,
// bit for bit. For generated rows on a GPU.
//
// x:          [rows][x_stride] f32: key heads' q, then their k, KEY_DIM each, value heads' v, then their z, VALUE_DIM each, b, a
// taps:       [channels][TAPS] f32, channels: of q, k and v; rates, dt_bias: [value_heads] f32; norm: [VALUE_DIM] f32
// row_info:   [rows] (position, slot); places: [slots] where a slot's states are
// conv_state: as causal_conv's state; memory: as delta_rule's
// out:        [rows][out_stride] f32, value heads side by side; inactive rows are never written
//
// Grid: x = key head, y = row where a run may begin (state_rows.wgsl). A workgroup has a key head with its RATIO value heads,
// whose columns stand side by side: THREADS / 4 of them at a time, four threads each, as in delta_rule.wgsl.
// TAPS, KEY_DIM, VALUE_DIM, RATIO: from the problem; heads of multiples of 4 up to 256, so that a partial of rms.wgsl is one vec4
// and those beyond a head's are 0. THREADS: a multiple of 64 from RATIO * VALUE_DIM / 4 on, chosen by the plan; changes no bit.
// UNROLLED: as in delta_rule.wgsl.
// Empty input: rows = 0 dispatches nothing.

const TAPS: u32 = 4u; // variant
const KEY_DIM: u32 = 128u; // variant
const VALUE_DIM: u32 = 128u; // variant
const RATIO: u32 = 1u; // variant
const THREADS: u32 = 512u; // variant
const UNROLLED: bool = false; // variant

const UNITS: u32 = KEY_DIM / 4u;
const VALUE_UNITS: u32 = VALUE_DIM / 4u;
const COLUMNS: u32 = RATIO * VALUE_DIM;
const CHANNELS: u32 = 2u * KEY_DIM + COLUMNS;
/// From chain to chain of q or k in workgroup memory: no two in the same banks.
const PITCH: u32 = (UNITS + 31u) / 32u * 32u + 8u;
const VALUES: u32 = 8u * PITCH;
/// Columns at a time, and turns.
const TILE: u32 = THREADS / 4u;
const TILES: u32 = (COLUMNS + TILE - 1u) / TILE;
/// Partials of a head that aren't 0, rounded up to vec4s.
const KEY_PARTS: u32 = (UNITS + 3u) / 4u * 4u;
const VALUE_PARTS: u32 = (VALUE_UNITS + 3u) / 4u * 4u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> taps: array<f32>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> places: array<u32>;
@group(0) @binding(4) var<storage, read> rates: array<f32>;
@group(0) @binding(5) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(6) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> conv_state: array<f32>;
@group(0) @binding(8) var<storage, read_write> memory: array<f32>;
@group(0) @binding(9) var<storage, read_write> out: array<vec4<f32>>;

struct Params {
  rows: u32,
  key_heads: u32,
  key_dim: u32,
  value_dim: u32,
  x_stride: u32,
  out_stride: u32,
  units: u32,
  l2_eps: f32,
  eps: f32,
}
@group(0) @binding(10) var<uniform> params: Params;

/// q and k by chains, element 4 i + chain at [chain * PITCH + i]; then v, in whose place a column's result comes.
var<workgroup> mixed: array<f32, VALUES + COLUMNS>;
/// Of q, of k, and of each value head.
var<workgroup> partials: array<f32, 2u * KEY_PARTS + RATIO * VALUE_PARTS>;
/// Decay and rate.
var<workgroup> gates: array<vec2<f32>, RATIO>;
var<workgroup> sums: array<f32, 2u * THREADS>;

/// Where an element of q, k (`KEY_DIM` on) or v lies in `mixed`.
fn place_of(channel: u32) -> u32 {
  if (channel >= 2u * KEY_DIM) {
    return VALUES + channel - 2u * KEY_DIM;
  }
  let element = channel % KEY_DIM;
  return (4u * (channel / KEY_DIM) + element % 4u) * PITCH + element / 4u;
}

/// 1 / sqrt(mean of squares + eps) of a head by its partials from `first` on, as rms_scale.
fn head_scale(first: u32, parts: u32, width: f32, eps: f32) -> f32 {
  var chains = vec4<f32>();
  var j = first;
  for (var left = parts / 4u; left >= 1u; left--) {
    chains += vec4<f32>(partials[j], partials[j + 1u], partials[j + 2u], partials[j + 3u]);
    j += 4u;
  }
  return inverseSqrt(((chains.x + chains.y) + (chains.z + chains.w)) / width + eps);
}

/// A channel's convolution, by its number among the workgroup's and among all; shifts its state.
fn convolved(channel: u32, all: u32, width: u32, place: u32, row: u32, is_first: bool) -> f32 {
  let kept = place * (TAPS - 1u) * width + all;
  var past: array<f32, TAPS>;
  for (var j = 0u; j < TAPS - 1u; j++) {
    past[j] = select(conv_state[kept + j * width], 0.0, is_first);
  }
  past[TAPS - 1u] = x[row * params.x_stride + all];
  var y = 0.0;
  for (var j = 0u; j < TAPS; j++) {
    y = fma(taps[all * TAPS + j], past[j], y);
  }
  for (var j = 0u; j < TAPS - 1u; j++) {
    conv_state[kept + j * width] = past[j + 1u];
  }
  return silu(y);
}

/// A column's sum of its chains: (0 + 1) + (2 + 3).
fn total(at: u32) -> f32 {
  return (sums[at] + sums[at + 1u]) + (sums[at + 2u] + sums[at + 3u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let count = run_length(group.y, params.rows);
  if (count == 0u) {
    return;
  }
  let chain = thread % 4u;
  let value_heads = params.key_heads * RATIO;
  let keys = params.key_heads * KEY_DIM;
  let width = 2u * keys + value_heads * VALUE_DIM;
  let place = places[row_info[group.y].y];
  let units = select(params.units, UNITS, UNROLLED);
  let step = 4u * VALUE_DIM;
  let own_unit = min(thread, COLUMNS / 4u - 1u);
  let normed = norm[own_unit % VALUE_UNITS];
  var row = group.y;
  for (var left = count; left >= 1u; left--) {
    let is_first = row_info[row].x == 0u;
    let z = row * params.x_stride + width + group.x * COLUMNS + 4u * own_unit;
    let opened = vec4<f32>(silu(x[z]), silu(x[z + 1u]), silu(x[z + 2u]), silu(x[z + 3u]));
    var channel = thread;
    for (var turn = (CHANNELS + THREADS - 1u) / THREADS; turn >= 1u; turn--) {
      if (channel < CHANNELS) {
        // Of q, of k, or of v.
        let part = min(channel / KEY_DIM, 2u);
        var head = group.x * KEY_DIM;
        if (part == 2u) {
          head = group.x * COLUMNS;
        }
        let all = part * keys + head + channel - part * KEY_DIM;
        mixed[place_of(channel)] = convolved(channel, all, width, place, row, is_first);
      }
      channel += THREADS;
    }
    // By the last threads, which have the fewest channels.
    let gated = THREADS - 1u - thread;
    if (gated < RATIO) {
      let head = group.x * RATIO + gated;
      let b = row * params.x_stride + width + value_heads * VALUE_DIM + head;
      let dt = softplus(x[b + value_heads] + dt_bias[head]);
      gates[gated] = vec2<f32>(exp(-rates[head] * dt), sigmoid(x[b]));
    }
    workgroupBarrier();
    if (thread < 2u * UNITS) {
      let vector = thread / UNITS;
      let i = thread % UNITS;
      let at = 4u * PITCH * vector + i;
      let v = vec4<f32>(mixed[at], mixed[at + PITCH], mixed[at + 2u * PITCH], mixed[at + 3u * PITCH]);
      partials[vector * KEY_PARTS + i] = rms_accumulate(0.0, v);
    }
    workgroupBarrier();
    // 1 / sqrt(sum + EPS) is 1 / sqrt(mean + EPS / width) / sqrt(width).
    let key_width = f32(params.key_dim);
    let eps = params.l2_eps / key_width;
    let query_scale = head_scale(0u, KEY_PARTS, key_width, eps) / key_width;
    let key_scale = head_scale(KEY_PARTS, KEY_PARTS, key_width, eps) / sqrt(key_width);
    channel = thread;
    for (var turn = (2u * KEY_DIM + THREADS - 1u) / THREADS; turn >= 1u; turn--) {
      if (channel < 2u * KEY_DIM) {
        let is_key = channel >= KEY_DIM;
        mixed[place_of(channel)] *= select(query_scale, key_scale, is_key);
      }
      channel += THREADS;
    }
    workgroupBarrier();
    let query = chain * PITCH;
    let key = (4u + chain) * PITCH;
    for (var tile = 0u; tile < TILES; tile++) {
      let own = tile * TILE + thread / 4u;
      let column = min(own, COLUMNS - 1u);
      let head = group.x * RATIO + column / VALUE_DIM;
      let kept = (place * value_heads + head) * UNITS * step + 4u * (column % VALUE_DIM) + chain;
      let gate = gates[column / VALUE_DIM];
      var s: array<f32, UNITS>;
      var i = 0u;
      for (var rest = units; rest >= 1u; rest--) {
        s[i] = select(memory[kept + i * step], 0.0, is_first);
        i += 1u;
      }
      var found = 0.0;
      i = 0u;
      for (var rest = units; rest >= 1u; rest--) {
        let faded = s[i] * gate.x;
        s[i] = faded;
        found = fma(faded, mixed[key + i], found);
        i += 1u;
      }
      // What is added next goes to the other half: one barrier between a sum's parts is enough.
      sums[thread] = found;
      workgroupBarrier();
      let d = gate.y * (mixed[VALUES + column] - total(thread - chain));
      var result = 0.0;
      i = 0u;
      for (var rest = units; rest >= 1u; rest--) {
        let corrected = fma(mixed[key + i], d, s[i]);
        s[i] = corrected;
        result = fma(corrected, mixed[query + i], result);
        i += 1u;
      }
      sums[THREADS + thread] = result;
      workgroupBarrier();
      if (own < COLUMNS) {
        i = 0u;
        for (var rest = units; rest >= 1u; rest--) {
          memory[kept + i * step] = s[i];
          i += 1u;
        }
      }
      let unit = tile * (TILE / 4u) + thread;
      if (thread < TILE / 4u && unit < COLUMNS / 4u) {
        let at = THREADS + 16u * thread;
        let y = vec4<f32>(total(at), total(at + 4u), total(at + 8u), total(at + 12u));
        let v = VALUES + 4u * unit;
        mixed[v] = y.x;
        mixed[v + 1u] = y.y;
        mixed[v + 2u] = y.z;
        mixed[v + 3u] = y.w;
        let part = 2u * KEY_PARTS + unit / VALUE_UNITS * VALUE_PARTS + unit % VALUE_UNITS;
        partials[part] = rms_accumulate(0.0, y);
      }
    }
    workgroupBarrier();
    if (thread < COLUMNS / 4u) {
      let v = VALUES + 4u * thread;
      let y = vec4<f32>(mixed[v], mixed[v + 1u], mixed[v + 2u], mixed[v + 3u]);
      let first = 2u * KEY_PARTS + thread / VALUE_UNITS * VALUE_PARTS;
      let scale = head_scale(first, VALUE_PARTS, f32(params.value_dim), params.eps);
      out[row * (params.out_stride / 4u) + group.x * (COLUMNS / 4u) + thread] = rms_apply(y, scale, normed) * opened;
    }
    // The next row's v comes where the results are.
    workgroupBarrier();
    row += 1u;
  }
}
