// Nothing but fused multiply-adds in registers: how many an adapter does in a second.
//
//   x[c] = start[i] + c / CHAINS, then params.steps times x[c] = x[c] * factor + addend;   out[i] = x[0] + x[1] + ... (lanes and chains)
//
// start: [invocations] f32
// out:   [invocations] f32
//
// Grid: x = invocations / WORKGROUP. An invocation has CHAINS chains of 4 lanes, which don't wait for each other.
// WORKGROUP: invocations per workgroup, 1..256, chosen by the plan. Steps lie in params, so that no compiler unrolls them all.
// Empty input: no invocation dispatches nothing; 0 steps give the starts' sum.

const WORKGROUP: u32 = 256u; // variant
const CHAINS = 8u;

@group(0) @binding(0) var<storage, read> start: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

struct Params {
  steps: u32,
  factor: f32,
  addend: f32,
}
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let factor = vec4f(params.factor);
  let addend = vec4f(params.addend);
  let first = vec4f(start[id.x]);
  var a = first;
  var b = first + 1.0 / f32(CHAINS);
  var c = first + 2.0 / f32(CHAINS);
  var d = first + 3.0 / f32(CHAINS);
  var e = first + 4.0 / f32(CHAINS);
  var f = first + 5.0 / f32(CHAINS);
  var g = first + 6.0 / f32(CHAINS);
  var h = first + 7.0 / f32(CHAINS);
  for (var left = params.steps; left > 0u; left--) {
    a = fma(a, factor, addend);
    b = fma(b, factor, addend);
    c = fma(c, factor, addend);
    d = fma(d, factor, addend);
    e = fma(e, factor, addend);
    f = fma(f, factor, addend);
    g = fma(g, factor, addend);
    h = fma(h, factor, addend);
  }
  out[id.x] = dot(a + b + c + d + e + f + g + h, vec4f(1.0));
}
