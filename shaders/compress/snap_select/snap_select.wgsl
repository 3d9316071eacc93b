// The entries that each kv head keeps: its best by score, as many as its budget says, and the window; in ascending order.
//
//   kept(h) = the best min(caps(h), length - window) entries t < length - window, and all from there on
//   Of equal scores, the one at the lower position is better.
//
// pooled         [score heads][score_stride] f32, none negative; this rank's heads from first_score_head on
// compress_info  (-, length, -, -), see compress_info.ts
// caps           [score heads] u32
// kept           [kv heads][score_stride] u32; what follows a head's last is never written
// kept_lengths   [kv heads] u32
//
// Grid (kv heads, 1, 1): a workgroup = one kv head. Each thread counts in its own share of neighbouring entries, then writes behind
// what the ones before it found.
// THREADS: invocations per workgroup, by the adapter; changes nothing.
const THREADS: u32 = 256; // variant

struct Params {
  score_stride: u32,
  first_score_head: u32,
  window: u32,
  digits: u32,
}

@group(0) @binding(0) var<storage, read> pooled: array<f32>;
@group(0) @binding(1) var<storage, read> compress_info: array<u32>;
@group(0) @binding(2) var<storage, read> caps: array<u32>;
@group(0) @binding(3) var<storage, read_write> kept: array<u32>;
@group(0) @binding(4) var<storage, read_write> kept_lengths: array<u32>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> counts: array<u32, THREADS>;
var<private> scores_at: u32;

// Bits of numbers that aren't negative are in their order.
fn item_key(item: u32) -> u32 {
  return bitcast<u32>(pooled[scores_at + item]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group_id.x;
  let length = compress_info[1];
  let keys = max(length, params.window) - params.window;
  scores_at = (params.first_score_head + head) * params.score_stride;
  let wanted = min(caps[params.first_score_head + head], keys);
  var cut = NOTHING_TAKEN;
  if (wanted > 0u) {
    cut = find_cut(keys, wanted, thread);
  }
  let share = (keys + THREADS - 1u) / THREADS;
  let first = min(thread * share, keys);
  let end = min(first + share, keys);
  var count = 0u;
  for (var left = end - first; left > 0u; left--) {
    let item = end - left;
    count += select(0u, 1u, is_taken(cut, item_key(item), item));
  }
  counts[thread] = count;
  workgroupBarrier();

  let to = head * params.score_stride;
  var at = to;
  for (var before = thread; before > 0u; before--) {
    at += counts[before - 1u];
  }
  for (var left = end - first; left > 0u; left--) {
    let item = end - left;
    if (is_taken(cut, item_key(item), item)) {
      kept[at] = item;
      at++;
    }
  }
  var i = keys + thread;
  for (var left = steps(i, length, THREADS); left > 0u; left--) {
    kept[to + wanted + i - keys] = i;
    i += THREADS;
  }
  if (thread == 0u) {
    kept_lengths[head] = wanted + length - keys;
  }
}
