// RMS normalisation of rows.
//
//   y[r][i] = (x[r][i] * 1 / sqrt(mean_i(x[r][i]^2) + eps)) * weight[i]
//   out[r][i] = y[r][i], or out[r][i] + y[r][i] (where RESIDUAL), or base[r][i] + y[r][i] (with APART besides)
//   SCALED, with RESIDUAL: out is that times weight[width]
//
// x:       [rows][stride] f32, elements from width to the next multiple of 4 are zero
// weight:  [width, or width + 1, padded to a multiple of 4] f32
// base:    as x
// out:     [rows][stride] f32; elements from width to the next multiple of 4 get zero (RESIDUAL: stay), those beyond are never written
//
// Grid: x = row, y = piece; a row has PIECES, each as a row of its own. One workgroup per piece. The order of the sum is
// rms.wgsl's: the same bits as a norm fused in another kernel.
// RESIDUAL, APART, SCALED, PIECES: from the problem. Variants that change no bit: AHEAD, vec4s of a row that a thread asks for at
// a time, and keeps where that is all; TURNS, how often a thread asks, or 0 where compilers aren't to see it. Software adapters:
// rms_norm_serial.wgsl.
// Empty input: rows = 0 dispatches nothing; a row of zeros gives zeros.

const RESIDUAL: bool = false; // variant
const APART: bool = false; // variant
const SCALED: bool = false; // variant
const PIECES: u32 = 1u; // variant
const AHEAD: u32 = 4u; // variant
const TURNS: u32 = 1u; // variant
const THREADS: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> base: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

struct Params {
  width: u32,
  stride: u32,
  eps: f32,
}
@group(0) @binding(4) var<uniform> params: Params;

/// vec4s of x, of the weight, and where RESIDUAL of out, or of base.
alias Asked = array<vec4<f32>, 3u * AHEAD>;

/// vec4s k, k + THREADS, ... of the row that begins at `row`; beyond its end x is 0.
fn ask(row: u32, k: u32) -> Asked {
  let vec4s = (params.width + 3u) / 4u;
  var asked = Asked();
  for (var i = 0u; i < AHEAD; i++) {
    let own = k + i * THREADS;
    let at = min(own, vec4s - 1u);
    asked[i] = select(vec4<f32>(), x[row + at], vec4<bool>(own < vec4s));
    asked[AHEAD + i] = weight[at];
    if (APART) {
      asked[2u * AHEAD + i] = base[row + at];
    } else if (RESIDUAL) {
      asked[2u * AHEAD + i] = out[row + at];
    }
  }
  return asked;
}

fn rms_add(x: vec4<f32>, scale: f32, factor: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
  let added = fma(x * scale, factor, sum);
  if (SCALED) {
    return added * weight[params.width / 4u][params.width % 4u];
  }
  return added;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = (group.x * PIECES + group.y) * (params.stride / 4u);
  let vec4s = (params.width + 3u) / 4u;
  let turns = select(TURNS, steps(0u, vec4s, AHEAD * THREADS), TURNS == 0u);
  var asked = ask(row, thread);
  var partial = 0.0;
  var k = thread;
  for (var left = turns; left >= 1u; left--) {
    if (left < turns) {
      k += AHEAD * THREADS;
      asked = ask(row, k);
    }
    for (var i = 0u; i < AHEAD; i++) {
      partial = rms_accumulate(partial, asked[i]);
    }
  }
  rms_partials[thread] = partial;
  workgroupBarrier();
  let scale = rms_scale(f32(params.width), params.eps);
  // Backwards: the last turn's are still here.
  for (var left = turns; left >= 1u; left--) {
    if (left < turns) {
      k -= AHEAD * THREADS;
      asked = ask(row, k);
    }
    for (var i = 0u; i < AHEAD; i++) {
      let own = k + i * THREADS;
      if (own < vec4s) {
        if (RESIDUAL) {
          out[row + own] = rms_add(asked[i], scale, asked[AHEAD + i], asked[2u * AHEAD + i]);
        } else {
          out[row + own] = rms_apply(asked[i], scale, asked[AHEAD + i]);
        }
      }
    }
  }
}
