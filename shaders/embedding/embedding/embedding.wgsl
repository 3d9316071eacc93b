// Rows of the embedding for this step's tokens, from a packed weight.
//
//   out[r][k] = weight[tokens[r]][k] * scale_by      for tokens[r] in shard_first .. shard_first + shard_rows - 1
//
// tokens: [rows] u32, token ids
// weight: [tile = n / 32][unit][lane = n % 32] of 16 bytes, n = token - shard_first: the layout of a linear layer's weight
// scale:  q8, q4: f16 [tile][block = k / 32][lane], two lanes a word, the even lane low
// out:    [rows][out_stride] f32; elements from hidden to the next multiple of 4 get zero, those beyond are never written,
//         nor is the row of a token outside the shard, unless ZERO_OTHERS: then it gets `others`
//
// Grid: x = ceil(hidden / 4 / (WORKGROUP * PER_THREAD)), y = row. An invocation writes 4 elements at a time.
// TYPE: 0 f32, 1 f16, 2 q8, 3 q4, and ZERO_OTHERS: from the problem. WORKGROUP 1..256, PER_THREAD from 1: chosen by the plan
// from the adapter.
// Empty input: rows = 0 dispatches nothing; an empty shard holds no token.

const TYPE: u32 = 0u; // variant
const ZERO_OTHERS: bool = false; // variant
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
}
@group(0) @binding(4) var<uniform> params: Params;

const TILE: u32 = 32u;

// Elements 4 k4 .. 4 k4 + 3 of row n.
fn four(n: u32, k4: u32) -> vec4<f32> {
  let tile = n / TILE;
  let lane = n % TILE;
  let base = tile * params.units * TILE + lane;
  if (TYPE == 0u) {
    return bitcast<vec4<f32>>(weight[base + k4 * TILE]);
  }
  if (TYPE == 1u) {
    let word = (k4 % 2u) * 2u;
    let unit = weight[base + k4 / 2u * TILE];
    return vec4<f32>(unpack2x16float(unit[word]), unpack2x16float(unit[word + 1u]));
  }
  let blocks = select(params.units, params.units / 2u, TYPE == 2u);
  let halves = unpack2x16float(scale[((tile * blocks + k4 / 8u) * TILE + lane) / 2u]);
  let d = select(halves.x, halves.y, lane % 2u == 1u);
  if (TYPE == 2u) {
    let word = bitcast<i32>(weight[base + k4 / 4u * TILE][k4 % 4u]);
    return vec4<f32>(vec4<i32>(word << 24u, word << 16u, word << 8u, word) >> vec4<u32>(24u)) * d;
  }
  let word = weight[base + k4 / 8u * TILE][k4 / 2u % 4u] >> (k4 % 2u * 4u);
  let nibbles = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
  return (vec4<f32>(nibbles) - vec4<f32>(8.0)) * d;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let n = tokens[group.y] - params.shard_first; // wraps for a token before the shard, to a number beyond it
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
    out[group.y * (params.out_stride / 4u) + k4] = select(vec4<f32>(), values, k < vec4<u32>(params.hidden));
    k4 += WORKGROUP;
  }
}
