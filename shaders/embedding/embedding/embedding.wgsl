// Rows of the embedding for this step's tokens, from a packed weight.
//
//   out[r][k] (+)= weight[n][k] * scale_by      for n = ((tokens[r * stride] >> shift) & mask) + first
//                                               in shard_first .. shard_first + shard_rows - 1
//
// tokens: [rows][stride] u32: token ids, positions, or what else a row of a table is found by
// weight: [tile = n / 32][unit][lane = n % 32] of 16 bytes, row n - shard_first: the layout of a linear layer's weight
// scale:  what a weight has beside its units
// out:    [rows][out_stride] f32; elements from hidden to the next multiple of 4 get zero, those beyond are never written,
//         nor is the row of a token outside the shard, unless ZERO_OTHERS: then it gets `others`
//
// Grid: x = ceil(hidden / 4 / (WORKGROUP * PER_THREAD)), y = row. An invocation writes 4 elements at a time.
// ZERO_OTHERS, ADDS: from the problem. WORKGROUP 1..256, PER_THREAD from 1: chosen by the plan
// from the adapter.
// Empty input: rows = 0 dispatches nothing; an empty shard holds no token.

const ZERO_OTHERS: bool = false; // variant
// What is read is added to out.
const ADDS: bool = false; // variant
const WORKGROUP: u32 = 64u; // variant
const PER_THREAD: u32 = 1u; // variant

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scale: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

struct Params {
  hidden: u32,
  units: u32,
  out_stride: u32,
  shard_first: u32,
  shard_rows: u32,
  scale_by: f32,
  // -0, the one number that leaves every other as it is when added, 0 and -0 too. As a param: a compiler may take -0.0 for 0.0.
  others: f32,
  index_stride: u32,
  index_shift: u32,
  index_mask: u32,
  index_first: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

/// Nothing is multiplied here.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return vec4<f32>();
}

/// Elements 4 k4 .. 4 k4 + 3 of row n.
fn four(n: u32, k4: u32) -> vec4<f32> {
  let index = (n / 32u * params.units + k4 / UNIT4) * 32u + n % 32u;
  return load_part(index, k4 % UNIT4, unit_scale(index));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = ((tokens[group.y * params.index_stride] >> params.index_shift) & params.index_mask) + params.index_first;
  let n = index - params.shard_first; // wraps for one before the shard, to a number beyond it
  let held = n < params.shard_rows;
  if (!held && !ZERO_OTHERS) {
    return;
  }
  var k4 = group.x * WORKGROUP * PER_THREAD + thread;
  for (var left = min(PER_THREAD, steps(k4, (params.hidden + 3u) / 4u, WORKGROUP)); left > 0u; left--) {
    let k = vec4<u32>(k4 * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    var values = vec4<f32>(params.others);
    if (held) {
      values = four(n, k4) * params.scale_by;
    }
    let at = group.y * (params.out_stride / 4u) + k4;
    if (ADDS) {
      values += out[at];
    }
    out[at] = select(vec4<f32>(), values, k < vec4<u32>(params.hidden));
    k4 += WORKGROUP;
  }
}
