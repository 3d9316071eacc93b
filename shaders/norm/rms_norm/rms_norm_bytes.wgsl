// RMS normalisation of rows (rms_norm.wgsl) for prompts with precision 'fast': written in bytes, as the next kernel multiplies them.
//
//   out[r][i] = (x[r][i] * 1 / sqrt(mean_i(x[r][i]^2) + eps)) * weight[i], rounded in blocks of 32 elements (byte_block.wgsl)
//
// x:       [rows][stride] f32
// weight:  [width] f32; width is a multiple of 32
// base:    not read
// out:     [rows] in bytes (row_vec4s.wgsl)
//
// Grid: x = row; one workgroup per row, an invocation for each block. The order of the sum is rms.wgsl's.
// THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; a row of zeros gives zeros.

const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> base: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

struct Params {
  width: u32,
  stride: u32,
  eps: f32,
}
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let stride4 = params.stride / 4u;
  let row = group.x * stride4;
  var j = thread;
  for (var turns = steps(thread, RMS_PARTIALS, THREADS); turns > 0u; turns--) {
    var partial = 0.0;
    var k = j;
    for (var left = steps(j, params.width / 4u, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, x[row + k]);
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.width), params.eps);
  var own = thread;
  for (var left = steps(thread, params.width / 32u, THREADS); left > 0u; left--) {
    var values = array<vec4<f32>, 8>();
    for (var i = 0u; i < 8u; i++) {
      values[i] = rms_apply(x[row + 8u * own + i], scale, weight[8u * own + i]);
    }
    write_bytes(group.x, own, stride4, values);
    own += THREADS;
  }
}
