// Ada-KV: how many entries beside the window each head of a layer keeps. The layer's best heads * base scores are taken over all
// heads together; a head's share is how many of its own are among them, moved towards the average by the floor.
//
//   cap_h = round((share_h * (1000 - floor) + base * floor) / 1000),  halves to even;  base = min(compress_info.base, length - window)
//   Of equal scores, the one at the lower position is better, then the one of the lower head.
//
// pooled         [heads][score_stride] f32, none negative; all heads of the layer, whoever holds them
// compress_info  (-, length, -, base), see compress_info.ts
// caps           [heads] u32
//
// Grid (1, 1, 1): one workgroup walks all scores of the layer, 8 times (top_k.wgsl) and once more.
// THREADS: invocations per workgroup, by the adapter; changes nothing. HEADS: of the layer.
const THREADS: u32 = 256; // variant
const HEADS: u32 = 8; // variant

struct Params {
  score_stride: u32,
  window: u32,
  // In thousandths: 0 takes the shares as they are, 1000 gives every head the same.
  floor: u32,
  digits: u32,
}

@group(0) @binding(0) var<storage, read> pooled: array<f32>;
@group(0) @binding(1) var<storage, read> compress_info: array<u32>;
@group(0) @binding(2) var<storage, read_write> caps: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> shares: array<atomic<u32>, HEADS>;

// Items are in order of position, then head. Bits of numbers that aren't negative are in their order.
fn item_key(item: u32) -> u32 {
  return bitcast<u32>(pooled[(item % HEADS) * params.score_stride + item / HEADS]);
}

fn round_thousandths(value: u32) -> u32 {
  let whole = value / 1000u;
  let rest = value % 1000u;
  return whole + select(0u, 1u, rest > 500u || (rest == 500u && whole % 2u == 1u));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
  let keys = max(compress_info[1], params.window) - params.window;
  let base = min(compress_info[3], keys);
  var head = thread;
  for (var left = steps(thread, HEADS, THREADS); left > 0u; left--) {
    atomicStore(&shares[head], 0u);
    head += THREADS;
  }
  var cut = NOTHING_TAKEN;
  if (base > 0u) {
    cut = find_cut(HEADS * keys, HEADS * base, thread);
  }
  workgroupBarrier();
  var item = thread;
  for (var left = steps(thread, HEADS * keys, THREADS); left > 0u; left--) {
    if (is_taken(cut, item_key(item), item)) {
      atomicAdd(&shares[item % HEADS], 1u);
    }
    item += THREADS;
  }
  workgroupBarrier();
  head = thread;
  for (var left = steps(thread, HEADS, THREADS); left > 0u; left--) {
    caps[head] = round_thousandths(atomicLoad(&shares[head]) * (1000u - params.floor) + base * params.floor);
    head += THREADS;
  }
}
