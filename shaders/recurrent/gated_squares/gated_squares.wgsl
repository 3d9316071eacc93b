// Mamba-2's gate, in place, and the sums of squares of what it gives: the first half of a norm over all value heads at once, of all
// ranks (scale_heads is the second).
//
//   x[r][i] <- (x[r][i] + skip[floor(i / head_dim)] * v[r][i]) * silu(gate[r][i])
//   squares[s][r][0] = sum of x[r][i]^2 over segment first + s of `total` (segments.wgsl)
//
// x:       [rows][stride] f32: this rank's value heads, from element `start` of the model's row on
// v:       [rows][v_stride] f32 from v_offset on, gate: [rows][gate_stride] f32 from gate_offset on: the same elements
// skip:    [heads] f32
// squares: [segments][rows][squares_stride] f32; others than element 0 are never written
//
// Grid: x = segment, y = row; one workgroup each. The order of a segment's sum is rms.wgsl's.
// THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; an empty segment's sum is 0.

const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> skip: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> squares: array<f32>;

struct Params {
  rows: u32,
  head4: u32,
  stride4: u32,
  v_stride4: u32,
  v_start4: u32,
  gate_stride4: u32,
  gate_start4: u32,
  squares_stride: u32,
  first: u32,
  total: u32,
  align: u32,
  model_width: u32,
  start: u32,
}
@group(0) @binding(5) var<uniform> params: Params;

/// The first vec4 of a segment among those of this rank.
fn begin_of(segment: u32) -> u32 {
  return (segment_start(segment, params.model_width, params.total, params.align) - params.start) / 4u;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let begin = begin_of(params.first + group.x);
  let end = begin_of(params.first + group.x + 1u);
  let row = group.y * params.stride4;
  let values = group.y * params.v_stride4 + params.v_start4;
  let gates = group.y * params.gate_stride4 + params.gate_start4;
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own >= 1u; own--) {
    var partial = 0.0;
    var k = begin + j;
    for (var left = steps(k, end, RMS_PARTIALS); left >= 1u; left--) {
      let g = gate[gates + k];
      let all = fma(vec4<f32>(skip[k / params.head4]), v[values + k], x[row + k]);
      let opened = all * vec4<f32>(silu(g.x), silu(g.y), silu(g.z), silu(g.w));
      x[row + k] = opened;
      partial = rms_accumulate(partial, opened);
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  if (thread == 0u) {
    squares[(group.x * params.rows + group.y) * params.squares_stride] = rms_total();
  }
}
