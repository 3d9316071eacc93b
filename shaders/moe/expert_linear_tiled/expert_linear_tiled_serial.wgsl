// Prompt rows by the weights of their experts, batched by expert, for software adapters, which pay dearly for barriers.
//
//   out[r][s][n] = sum_k W[expert of (r, s)][n][k] x[r][k]           (x[r][s][k] where x_divisor is 1)
//   SWIGLU: gate = W[n] x, up = W[32 tiles + n] x, out = gate / (1 + exp(-gate)) * up; CLAMPED: expert_output.wgsl
//   BIASED: each sum plus its bias
//
// x:          [rows][x_stride4 * 4] f32, or with x_divisor 1 [rows][top_k][x_stride4 * 4]; padded with zeros to 32 elements
// weight:     experts expert_first .. expert_first + expert_count - 1, `tiles` packed tiles of 32 outputs each
//             (linear/pack.ts); SWIGLU: tiles of gate rows, then as many of up rows
// scale:      f16 scales of q8 and q4, bytes of mxfp4
// pairs:       [experts][rows] u32: each expert's (row, slot)s, as row * top_k + slot (moe_sort)
// pair_counts: [experts] u32
// bias:       [experts of the rank][matrices][32 tiles] f32, the shard's from expert bias_first on; only with BIASED
// out:        [rows][top_k][out_stride] f32; elements from out_features on, and (row, slot)s whose expert is not in this buffer,
//             are never written
//
// Grid: x = tile of 32 outputs, y = tile of TILE_ROWS (row, slot)s of one expert (expert_tile.wgsl); those beyond the last
// exit. One invocation computes 2 outputs of two rows at a time (serial.wgsl).
//
// TILE_ROWS: even, from the plan; changes no bit. SERIAL_ROWS 2. SWIGLU: from the problem.
// Empty input: an expert without rows has no tile.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read> pairs: array<u32>;
@group(0) @binding(4) var<storage, read> pair_counts: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  x_divisor: u32,
  top_k: u32,
  expert_first: u32,
  expert_count: u32,
  tiles: u32,
  matrices: u32,
  units: u32,
  used_units: u32,
  x_stride4: u32,
  out_features: u32,
  out_stride: u32,
  bias_first: u32,
  alpha: f32,
  limit: f32,
}
@group(0) @binding(7) var<uniform> params: Params;

/// Elements 4 * k4 .. 4 * k4 + 3 of a row of x.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return x[row * params.x_stride4 + k4];
}

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let own = find_tile(group.y);
  if (own.expert == params.expert_count) {
    return;
  }
  let tile = own.expert * params.tiles * params.matrices + group.x;
  let n = group.x * 32u + thread;
  for (var i = 0u; i < own.count; i += 2u) {
    let pair0 = pairs[own.first + i];
    // An odd tail computes its last row twice and writes it once.
    let pair1 = pairs[own.first + min(i + 1u, own.count - 1u)];
    let row0 = pair0 / params.x_divisor;
    let row1 = pair1 / params.x_divisor;
    // Without SWIGLU, `gates` stays empty and `sums` are the outputs. One call of contract compiles in half the time of two.
    var gates = vec4<f32>();
    var sums = vec4<f32>();
    for (var matrix = 0u; matrix < params.matrices; matrix++) {
      gates = sums;
      sums = contract(tile + matrix * params.tiles, thread, row0, row1);
    }
    write_output(pair0, own.expert, n, gates.x, sums.x);
    write_output(pair0, own.expert, n + SERIAL_STEP, gates.y, sums.y);
    if (i + 1u < own.count) {
      write_output(pair1, own.expert, n, gates.z, sums.z);
      write_output(pair1, own.expert, n + SERIAL_STEP, gates.w, sums.w);
    }
  }
}
