// RMS norm of each head, times its gate: in place.
//
//   x[r][h] <- x[r][h] / sqrt(mean(x[r][h]^2) + eps) * weight * silu(gate[r][h])
//
// x:      [rows][stride] f32, heads of `width` elements side by side
// gate:   [rows][gate_stride] f32, heads likewise from gate_offset on
// weight: [width] f32
//
// Grid: x = head, y = row; one workgroup each. The order of the sum is rms.wgsl's.
// THREADS: a power of two, 1..64, chosen by the plan from the adapter; changes no bit.
// Empty input: rows = 0 dispatches nothing; a head of zeros stays one.

const THREADS: u32 = 32u; // variant

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;

struct Params {
  width: u32,
  stride: u32,
  gate_stride: u32,
  gate_offset: u32,
  eps: f32,
}
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let vec4s = params.width / 4u;
  let first = group.y * (params.stride / 4u) + group.x * vec4s;
  let gates = group.y * params.gate_stride + params.gate_offset + group.x * params.width;
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own > 0u; own--) {
    var partial = 0.0;
    var k = j;
    for (var left = steps(j, vec4s, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, x[first + k]);
      k += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.width), params.eps);
  var k = thread;
  for (var left = steps(thread, vec4s, THREADS); left > 0u; left--) {
    let g = gates + 4u * k;
    let opened = vec4<f32>(silu(gate[g]), silu(gate[g + 1u]), silu(gate[g + 2u]), silu(gate[g + 3u]));
    x[first + k] = rms_apply(x[first + k], scale, weight[k]) * opened;
    k += THREADS;
  }
}
