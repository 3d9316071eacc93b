// Lists the (row, slot)s of each expert, in ascending order of rows.
//
//   pairs[e][0 .. pair_counts[e] - 1] = { r * top_k + s : expert_ids[r][s] = e, r < row_count }, ascending
//
// expert_ids:  [rows][top_k] u32; an expert occurs at most once in a row
// row_count:   [1] u32, rows of this step (moe_route)
// pairs:       [experts][rows] u32; what follows an expert's last (row, slot) is never written
// pair_counts: [experts] u32
//
// Grid: x = expert. Each invocation counts in its own share of neighbouring rows, then writes behind what the ones before it found:
// no atomics, so the lists are the same every time.
//
// THREADS: invocations per workgroup, 1..256, by the adapter; changes nothing.
// Empty input: without rows every count is 0.

const THREADS: u32 = 64u; // variant

@group(0) @binding(0) var<storage, read> expert_ids: array<u32>;
@group(0) @binding(1) var<storage, read> row_count: array<u32>;
@group(0) @binding(2) var<storage, read_write> pairs: array<u32>;
@group(0) @binding(3) var<storage, read_write> pair_counts: array<u32>;

struct Params {
  rows: u32,
  top_k: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> counts: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let expert = group.x;
  let rows = min(row_count[0], params.rows);
  let share = (rows + THREADS - 1u) / THREADS;
  let first = min(thread * share, rows) * params.top_k;
  let end = min((thread + 1u) * share, rows) * params.top_k;
  var count = 0u;
  for (var left = end - first; left > 0u; left--) {
    count += select(0u, 1u, expert_ids[end - left] == expert);
  }
  counts[thread] = count;
  workgroupBarrier();

  var before = 0u;
  for (var left = thread; left > 0u; left--) {
    before += counts[left - 1u];
  }
  var at = expert * params.rows + before;
  for (var left = end - first; left > 0u; left--) {
    let pair = end - left;
    if (expert_ids[pair] == expert) {
      pairs[at] = pair;
      at++;
    }
  }
  if (thread == THREADS - 1u) {
    pair_counts[expert] = before + count;
  }
}
