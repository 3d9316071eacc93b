// Attention of 4 heads of a row per invocation over chunks of a sequence's latent, for software adapters: what mla_attend.wgsl
// computes, without barriers. Each number of the latent that an invocation reads and unpacks serves its 4 heads, and the
// invocations of a workgroup read the same tokens at the same time.
//
//   s_t = scale * q . latent_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) latent_t[0..R)      t < limit
//
// The kernel declares the bindings and params of mla.ts. Needs latent_layout.wgsl, a KvUnit, and softmax_state.wgsl.
// Each TILE tokens of a chunk by themselves, then merged in ascending order in partial_o, which no other invocation touches. A
// head's bits depend on its own query and limit only. Loops take their bounds from params so that no compiler unrolls them.
// Variant, chosen by the kernel's plan: THREADS, invocations of a workgroup, at most 8: 2 KiB of workgroup memory each.
const THREADS: u32 = 8; // variant
const TILE: u32 = 128u;

// [token][thread], of 4 heads: scores, then weights exp(s - m); each invocation has its own column.
var<workgroup> weights: array<vec4<f32>, TILE * THREADS>;

// 4 heads of a row.
struct Queries {
  // First unit in q_abs of each head.
  at: vec4<u32>,
  // Index in partial_ml of each head; units follow at to * rank_units in partial_o. A head beyond the last is not written.
  to: vec4<u32>,
  heads: u32,
  // Tokens attended to.
  limit: u32,
}

// Unit 0 of the token at `offset` in its block.
fn token_base(physical: u32, offset: u32) -> u32 {
  return latent_base(physical, params.rank_units, params.key_units - params.rank_units, offset);
}

// 4 elements of the latent of the token whose unit 0 is `token`.
fn load_latent(token: u32, unit: u32) -> vec4<f32> {
  let scales = latent_cache[token + kv_scale_unit(params.rank_units, unit) * BLOCK];
  return kv_unpack(latent_cache[token + unit * BLOCK], kv_scale(scales, unit));
}

// 4 elements of the token's latent or, behind them, of its k_pe.
fn load_key(token: u32, unit: u32) -> vec4<f32> {
  if (KV_SCALED && unit >= params.rank_units) {
    let at = token + latent_key_unit(params.rank_units, unit - params.rank_units) * BLOCK;
    return kv_unpack_wide(latent_cache[at], latent_cache[at + BLOCK]);
  }
  return load_latent(token, unit);
}

// As softmax_weight, of each head.
fn rescale(m: vec4<f32>, new_m: vec4<f32>) -> vec4<f32> {
  return select(exp(max(m - new_m, vec4<f32>(-200.0))), vec4<f32>(1.0), m == new_m);
}

// scores + q . k for 4 tokens' k, of one head.
fn add_scores(q: vec4<f32>, k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32>, scores: vec4<f32>) -> vec4<f32> {
  var s = fma(vec4<f32>(q.x), vec4<f32>(k0.x, k1.x, k2.x, k3.x), scores);
  s = fma(vec4<f32>(q.y), vec4<f32>(k0.y, k1.y, k2.y, k3.y), s);
  s = fma(vec4<f32>(q.z), vec4<f32>(k0.z, k1.z, k2.z, k3.z), s);
  return fma(vec4<f32>(q.w), vec4<f32>(k0.w, k1.w, k2.w, k3.w), s);
}

// Scales and keeps a token's scores, and returns them: EMPTY_M if masked.
fn put_scores(scores: vec4<f32>, token: u32, limit: u32, to: u32) -> vec4<f32> {
  weights[to] = select(vec4<f32>(EMPTY_M), params.scale * scores, token < limit);
  return weights[to];
}

// Scores of tokens first .. first + count - 1; returns each head's maximum.
fn score_tile(queries: Queries, table: u32, first: u32, count: u32, thread: u32) -> vec4<f32> {
  var m = vec4<f32>(EMPTY_M);
  // 4 tokens at once, which are of one block; those beyond count are in the block all the same, and masked.
  for (var t = 0u; t < count; t += 4u) {
    let key = token_base(block_table[table + (first + t) / BLOCK], (first + t) % BLOCK);
    // Of 4 tokens each.
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var unit = 0u; unit < params.key_units; unit++) {
      let k0 = load_key(key, unit);
      let k1 = load_key(key + 1u, unit);
      let k2 = load_key(key + 2u, unit);
      let k3 = load_key(key + 3u, unit);
      s0 = add_scores(q_abs[queries.at.x + unit], k0, k1, k2, k3, s0);
      s1 = add_scores(q_abs[queries.at.y + unit], k0, k1, k2, k3, s1);
      s2 = add_scores(q_abs[queries.at.z + unit], k0, k1, k2, k3, s2);
      s3 = add_scores(q_abs[queries.at.w + unit], k0, k1, k2, k3, s3);
    }
    let of_tokens = transpose(mat4x4<f32>(s0, s1, s2, s3));
    m = max(m, put_scores(of_tokens[0], first + t, queries.limit, t * THREADS + thread));
    m = max(m, put_scores(of_tokens[1], first + t + 1u, queries.limit, (t + 1u) * THREADS + thread));
    m = max(m, put_scores(of_tokens[2], first + t + 2u, queries.limit, (t + 2u) * THREADS + thread));
    m = max(m, put_scores(of_tokens[3], first + t + 3u, queries.limit, (t + 3u) * THREADS + thread));
  }
  return m;
}

// Writes units `unit` and unit + 1 of a head's o: earlier * what the lane's earlier tiles left there + own * o.
fn put_units(
  queries: Queries, head: u32, unit: u32, o0: vec4<f32>, o1: vec4<f32>, own: f32, earlier: f32, merge: bool,
) {
  if (head >= queries.heads) {
    return;
  }
  let at = queries.to[head] * params.rank_units + unit;
  var new0 = own * o0;
  var new1 = own * o1;
  if (merge) {
    new0 = fma(vec4<f32>(earlier), partial_o[at], new0);
    new1 = fma(vec4<f32>(earlier), partial_o[at + 1u], new1);
  }
  // Never -0, whose sign could depend on masked tokens added with weight 0.
  partial_o[at] = select(new0, vec4<f32>(), new0 == vec4<f32>());
  partial_o[at + 1u] = select(new1, vec4<f32>(), new1 == vec4<f32>());
}

// Chunks first_chunk, first_chunk + chunk_step, ... that start below `end`, the greatest limit of the workgroup (or the chunk's
// end). `table` is the slot's first entry in block_table.
fn mla_attend(queries: Queries, table: u32, first_chunk: u32, chunk_step: u32, end: u32, thread: u32) {
  // Of each head, over the tiles so far.
  var m = vec4<f32>(EMPTY_M);
  var l = vec4<f32>();
  for (var chunk = first_chunk; chunk * CHUNK < end; chunk += chunk_step) {
    let chunk_end = min(end, (chunk + 1u) * CHUNK);
    for (var first = chunk * CHUNK; first < chunk_end; first += TILE) {
      let count = min(TILE, chunk_end - first);
      let own_m = score_tile(queries, table, first, count, thread);
      var own_l = vec4<f32>();
      for (var t = 0u; t < count; t++) {
        let score = weights[t * THREADS + thread];
        // Exactly 0 for a masked token.
        let weight = select(exp(max(score - own_m, vec4<f32>(-200.0))), vec4<f32>(), score == vec4<f32>(EMPTY_M));
        weights[t * THREADS + thread] = weight;
        own_l += weight;
      }
      // An empty state has m = EMPTY_M: its weight is 0 beside another, whose own is then exactly 1.
      let new_m = max(m, own_m);
      let earlier = rescale(m, new_m);
      let own = rescale(own_m, new_m);
      let merge = first != first_chunk * CHUNK;
      // 2 units at once: the latent has an even number.
      for (var unit = 0u; unit < params.rank_units; unit += 2u) {
        var a = mat4x4<f32>();
        var b = mat4x4<f32>();
        for (var t = 0u; t < count; t++) {
          let token = first + t;
          let at = token_base(block_table[table + token / BLOCK], token % BLOCK);
          let weight = weights[t * THREADS + thread];
          let v = load_latent(at, unit);
          let w = load_latent(at, unit + 1u);
          a[0] = fma(vec4<f32>(weight.x), v, a[0]);
          a[1] = fma(vec4<f32>(weight.y), v, a[1]);
          a[2] = fma(vec4<f32>(weight.z), v, a[2]);
          a[3] = fma(vec4<f32>(weight.w), v, a[3]);
          b[0] = fma(vec4<f32>(weight.x), w, b[0]);
          b[1] = fma(vec4<f32>(weight.y), w, b[1]);
          b[2] = fma(vec4<f32>(weight.z), w, b[2]);
          b[3] = fma(vec4<f32>(weight.w), w, b[3]);
        }
        put_units(queries, 0u, unit, a[0], b[0], own.x, earlier.x, merge);
        put_units(queries, 1u, unit, a[1], b[1], own.y, earlier.y, merge);
        put_units(queries, 2u, unit, a[2], b[2], own.z, earlier.z, merge);
        put_units(queries, 3u, unit, a[3], b[3], own.w, earlier.w, merge);
      }
      m = new_m;
      l = fma(l, earlier, own_l * own);
    }
  }
  for (var i = 0u; i < queries.heads; i++) {
    partial_ml[queries.to[i]] = vec2<f32>(m[i], l[i]);
  }
}
