// Sums of squares of q and of k, segment by segment: the first half of a norm over all heads at once (scale_heads is the second).
//
//   out[s][r][0] = sum of x[r][i]^2 over q of segment s: elements q_start + s * q_width to q_start + (s + 1) * q_width
//   out[s][r][1] = the same over k of segment s: elements k_start + s * k_width to k_start + (s + 1) * k_width
//
// x:   [rows][stride] f32; from q_start on q of these segments, from k_start on their k
// out: [segments][rows][out_stride] f32; elements from 2 on are never written
//
// Grid: x = segment, y = row. The order of each sum is that of rms.wgsl.
// THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing.

const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  stride4: u32,
  q_start4: u32,
  q_vec4s: u32,
  k_start4: u32,
  k_vec4s: u32,
  out_stride: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group.y * params.stride4;
  let at = (group.x * params.rows + group.y) * params.out_stride;
  for (var half = 0u; half < 2u; half++) {
    let vec4s = select(params.q_vec4s, params.k_vec4s, half == 1u);
    let start = row + select(params.q_start4, params.k_start4, half == 1u) + group.x * vec4s;
    var j = thread;
    for (var own = steps(thread, RMS_PARTIALS, THREADS); own >= 1u; own--) {
      var partial = 0.0;
      var k = j;
      for (var left = steps(j, vec4s, RMS_PARTIALS); left >= 1u; left--) {
        partial = rms_accumulate(partial, x[start + k]);
        k += RMS_PARTIALS;
      }
      rms_partials[j] = partial;
      j += THREADS;
    }
    workgroupBarrier();
    if (thread == 0u) {
      out[at + half] = rms_total();
    }
    workgroupBarrier();
  }
}
