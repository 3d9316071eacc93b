// Dependent multiply-adds by one workgroup: does an adapter take longer for more invocations?
//
//   x = 16 x params.steps times x * 0.5 + 1, from x = i;   out[i] = x, near 2 after a few steps
//
// out: [THREADS] f32
//
// Grid: 1 workgroup of THREADS invocations. A GPU runs all of them at once; a CPU one vector after another, on one core.

const THREADS: u32 = 32u; // variant

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<uniform> params: Params;

struct Params {
  steps: u32,
}

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) i: u32) {
  var x = f32(i);
  for (var step = 0u; step < params.steps; step++) {
    for (var k = 0u; k < 16u; k++) {
      x = fma(x, 0.5, 1.0);
    }
  }
  out[i] = x;
}
