// SnapKV: scores as the largest of their neighbours', so that what stands around a key that matters is kept with it.
//
//   pooled(head, t) = max of scores(head, u),  |u - t| <= radius,  0 <= u < length - window
//
// scores, pooled  [heads][score_stride] f32
// compress_info   (-, length, -, -), see compress_info.ts
//
// Grid (keys / 256, heads, 1): a thread = one key of one head.
// Keys of the window and beyond: nothing is written.
const THREADS: u32 = 256u;

struct Params {
  score_stride: u32,
  window: u32,
  radius: u32,
}

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read> compress_info: array<u32>;
@group(0) @binding(2) var<storage, read_write> pooled: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let length = compress_info[1];
  let key = group_id.x * THREADS + thread;
  if (key + params.window >= length) {
    return;
  }
  let row = group_id.y * params.score_stride;
  let end = min(key + params.radius + 1u, length - params.window);
  var largest = scores[row + key];
  for (var left = end - (key - min(key, params.radius)); left > 0u; left--) {
    largest = max(largest, scores[row + end - left]);
  }
  pooled[row + key] = largest;
}
