// Reads and writes memory once: how many bytes an adapter moves in a second. A copy from buffer to buffer may take an engine of its own,
// which on some GPUs is slower.
//
//   out[i] = start[i]
//
// start: [units] vec4u
// out:   [units] vec4u
//
// Grid: x = units / (WORKGROUP * EACH). An invocation copies EACH units, WORKGROUP apart, all of them asked for before one is written.
// WORKGROUP: invocations per workgroup, 1..256, chosen by the plan.

const WORKGROUP: u32 = 256u; // variant
const EACH = 4u;

@group(0) @binding(0) var<storage, read> start: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4u>;

struct Params {
  units: u32,
}
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let first = group.x * WORKGROUP * EACH + thread;
  if (first + 3u * WORKGROUP >= params.units) {
    return;
  }
  let a = start[first];
  let b = start[first + WORKGROUP];
  let c = start[first + 2u * WORKGROUP];
  let d = start[first + 3u * WORKGROUP];
  out[first] = a;
  out[first + WORKGROUP] = b;
  out[first + 2u * WORKGROUP] = c;
  out[first + 3u * WORKGROUP] = d;
}
