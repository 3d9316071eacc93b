// SnapKV: what the last queries of a prompt (the window) attend to, key by key.
//
//   score(kv head, t) = mean over the kv head's query heads and the window's queries of exp(scale * q . k_t - m) / l,  t < length - window
//   (m, l): the query's softmax statistics over all keys that it sees, merged from the prompt rows' partials; every query of the
//   window sees every such t
//
// q            [rows][q_units*4] f32, rotated; head h at h * HEAD_DIM
// k_cache      see kv_layout.wgsl, KvUnit; of cache_kv_heads heads, those from first_kv_head on
// partial_ml   [rows][heads][lanes] (m, l) of attention_prefill over the same rows, f32, natural log, scale applied
// compress_info  (row of the window's first query, length, slot, -), see compress_info.ts
// block_table  see kv_table.wgsl; nothing is evicted yet
// scores       [score heads][score_stride] f32; this rank's heads from first_score_head on
//
// Grid (keys / THREADS, kv heads, 1): a thread = one key of one kv head; queries four at a time.
// THREADS: invocations per workgroup, by the adapter; changes nothing. WINDOW: the window's queries, 1 to 256.
// Keys of the window and beyond: nothing is written.
const THREADS: u32 = 64; // variant
const WINDOW: u32 = 32; // variant

struct Params {
  heads: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  q_units: u32,
  lanes: u32,
  table_stride: u32,
  score_stride: u32,
  first_score_head: u32,
  // Query heads of a kv head.
  group: u32,
  // HEAD_UNITS and WINDOW as bounds that compilers don't unroll: lavapipe would compile for many seconds.
  head_units: u32,
  window: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<KvUnit>;
@group(0) @binding(2) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> compress_info: array<u32>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read_write> scores: array<f32>;
@group(0) @binding(6) var<uniform> params: Params;

// (m, l) of the window's queries of one head.
var<workgroup> stats: array<vec2<f32>, WINDOW>;

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

// 4 dims of the key whose unit 0 is `key`.
fn load_key(key: u32, unit: u32) -> vec4<f32> {
  return kv_unpack(k_cache[key + unit * BLOCK], kv_scale(k_cache[key + kv_scale_unit(HEAD_UNITS, unit) * BLOCK], unit));
}

// (m, l) of a (row, head), its lanes merged in order.
fn query_stats(item: u32, lanes: u32) -> vec2<f32> {
  var m = EMPTY_M;
  var l = 0.0;
  for (var left = lanes; left > 0u; left--) {
    let lane = lanes - left;
    let part = partial_ml[item * params.lanes + lane];
    if (part.y > 0.0) {
      let new_m = max(m, part.x);
      l = fma(l, softmax_weight(m, new_m), part.y * softmax_weight(part.x, new_m));
      m = new_m;
    }
  }
  return vec2<f32>(m, l);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let kv_head = group_id.y;
  let length = compress_info[1];
  let keys = length - WINDOW;
  let first = group_id.x * THREADS;
  if (length <= WINDOW || first >= keys) {
    return;
  }
  let table = head_table(compress_info[2], params.first_kv_head + kv_head);
  // A copied head's sequence may be with another rank, which scores it.
  if (!holds_chunk(table, 0u)) {
    return;
  }
  let first_row = compress_info[0];
  let lanes = min(params.lanes, (length + CHUNK - 1u) / CHUNK);
  // Threads beyond the keys compute the last one's score again, and don't write it.
  let token = min(first + thread, keys - 1u);
  let head_of_block = block_head(params.first_kv_head + kv_head);
  let key = key_base(entry_block(table, token / BLOCK), block_heads(), head_of_block, token % BLOCK);

  var sum = 0.0;
  for (var heads = params.group; heads > 0u; heads--) {
    let own = params.group - heads;
    let head = kv_head * params.group + own;
    workgroupBarrier();
    var query = thread;
    for (var left = steps(thread, params.window, THREADS); left > 0u; left--) {
      stats[query] = query_stats((first_row + query) * params.heads + head, lanes);
      query += THREADS;
    }
    workgroupBarrier();
    var i = 0u;
    for (var fours = steps(0u, params.window, 4u); fours > 0u; fours--) {
      // Queries beyond the window repeat its last one; they aren't counted.
      let rows = min(vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(WINDOW - 1u));
      let at = (vec4<u32>(first_row) + rows) * params.q_units + vec4<u32>(head * HEAD_UNITS);
      var s0 = vec4<f32>();
      var s1 = vec4<f32>();
      var s2 = vec4<f32>();
      var s3 = vec4<f32>();
      for (var left = params.head_units; left > 0u; left--) {
        let unit = params.head_units - left;
        let k = load_key(key, unit);
        s0 = fma(q[at.x + unit], k, s0);
        s1 = fma(q[at.y + unit], k, s1);
        s2 = fma(q[at.z + unit], k, s2);
        s3 = fma(q[at.w + unit], k, s3);
      }
      let score = params.scale * vec4<f32>(sum4(s0), sum4(s1), sum4(s2), sum4(s3));
      let m = vec4<f32>(stats[rows.x].x, stats[rows.y].x, stats[rows.z].x, stats[rows.w].x);
      let l = vec4<f32>(stats[rows.x].y, stats[rows.y].y, stats[rows.z].y, stats[rows.w].y);
      let counted = vec4<u32>(i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.window);
      let p = select(vec4<f32>(), exp(score - m) / l, counted);
      sum += (p.x + p.y) + (p.z + p.w);
      i += 4u;
    }
  }
  if (first + thread < keys) {
    scores[(params.first_score_head + kv_head) * params.score_stride + token] = sum / f32(params.group * params.window);
  }
}
