// Attention of 4 query vectors over chunks of a sequence's latent, which they read together: what mla_split (4 heads of a row,
// one chunk) and mla_prefill (4 rows of a head, the chunks of a merge lane) have in common.
//
//   s_t = scale * q . latent_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) latent_t[0..R)      t < limit
//
// The kernel declares the bindings and params of mla.ts. Needs latent_layout.wgsl, a KvUnit, and softmax_state.wgsl.
// Scores: a token a thread. Values: thread = (unit, slice) sums one unit (4 elements) over every slices-th token; then slices
// are added in order. A vector's bits depend on its own query and limit only, never on the other vectors. Params: `stats`
// threads scan scores, `lanes` units side by side, lanes * slices <= THREADS.
// For GPUs; software adapters take mla_attend_row.wgsl. Loops count down (steps.wgsl) from params, which no compiler unrolls; those that
// wait for memory ask for UNROLL units at once, then use them in order.
/// At least CHUNK: a thread has one token at most.
const THREADS: u32 = 256;
const UNROLL: u32 = 4;

struct Queries {
  // First unit in q_abs of each vector.
  at: vec4<u32>,
  // Tokens attended to; 0 for none.
  limit: vec4<u32>,
  // Index in partial_ml; units follow at to * rank_units in partial_o. NOWHERE: nothing is written.
  to: vec4<u32>,
}
const NOWHERE: u32 = 0xffffffffu;

// Scores, then weights exp(s - m), of the chunk's tokens.
var<workgroup> weights: array<vec4<f32>, CHUNK>;
var<workgroup> maxima: array<vec4<f32>, 16>;
var<workgroup> sums: array<vec4<f32>, 16>;
// [lane][slice], of one vector at a time.
var<workgroup> slice_o: array<vec4<f32>, THREADS>;
var<workgroup> blocks: array<u32, CHUNK / BLOCK>;

// The same of each vector.
struct Four {
  v0: vec4<f32>,
  v1: vec4<f32>,
  v2: vec4<f32>,
  v3: vec4<f32>,
}

// m and l of each vector.
struct MaxSum {
  m: vec4<f32>,
  l: vec4<f32>,
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

// 4 elements of the token whose unit 0 is `token`.
fn load_latent(token: u32, unit: u32) -> vec4<f32> {
  let scales = latent_cache[token + kv_scale_unit(params.key_units, unit) * BLOCK];
  return kv_unpack(latent_cache[token + unit * BLOCK], kv_scale(scales, unit));
}

// q . latent of every vector so far, and one unit more.
fn add_score(s: Four, at: vec4<u32>, unit: u32, k: vec4<f32>) -> Four {
  return Four(
    fma(q_abs[at.x + unit], k, s.v0),
    fma(q_abs[at.y + unit], k, s.v1),
    fma(q_abs[at.z + unit], k, s.v2),
    fma(q_abs[at.w + unit], k, s.v3),
  );
}

// q . latent of every vector, for the token whose unit 0 is `key`.
fn latent_scores(at: vec4<u32>, key: u32) -> vec4<f32> {
  var s: Four;
  var unit = 0u;
  for (var left = params.key_units / UNROLL; left > 0u; left--) {
    var keys = array<vec4<f32>, UNROLL>();
    for (var u = 0u; u < UNROLL; u++) {
      keys[u] = load_latent(key, unit + u);
    }
    for (var u = 0u; u < UNROLL; u++) {
      s = add_score(s, at, unit + u, keys[u]);
    }
    unit += UNROLL;
  }
  for (var left = params.key_units % UNROLL; left > 0u; left--) {
    s = add_score(s, at, unit, load_latent(key, unit));
    unit++;
  }
  return params.scale * vec4<f32>(sum4(s.v0), sum4(s.v1), sum4(s.v2), sum4(s.v3));
}

// 4 elements of the chunk's token t.
fn chunk_latent(t: u32, unit: u32) -> vec4<f32> {
  return load_latent(latent_base(blocks[t / BLOCK], params.key_units, t % BLOCK), unit);
}

// The weighed sum so far, and one token more.
fn add_value(o: Four, t: u32, v: vec4<f32>) -> Four {
  let w = weights[t];
  return Four(
    fma(vec4<f32>(w.x), v, o.v0),
    fma(vec4<f32>(w.y), v, o.v1),
    fma(vec4<f32>(w.z), v, o.v2),
    fma(vec4<f32>(w.w), v, o.v3),
  );
}

// sum of weight * latent over tokens first, first + step, ... < count of the chunk.
fn weigh_latent(unit: u32, first: u32, step: u32, count: u32) -> Four {
  var o: Four;
  let tokens = steps(first, count, step);
  var t = first;
  for (var left = tokens / UNROLL; left > 0u; left--) {
    var values = array<vec4<f32>, UNROLL>();
    for (var u = 0u; u < UNROLL; u++) {
      values[u] = chunk_latent(t + u * step, unit);
    }
    for (var u = 0u; u < UNROLL; u++) {
      o = add_value(o, t + u * step, values[u]);
    }
    t += UNROLL * step;
  }
  for (var left = tokens % UNROLL; left > 0u; left--) {
    o = add_value(o, t, chunk_latent(t, unit));
    t += step;
  }
  return o;
}

// Exactly 0 for a masked token, whose score is EMPTY_M.
fn score_weights(score: vec4<f32>, m: vec4<f32>) -> vec4<f32> {
  return select(exp(max(score - m, vec4<f32>(-200.0))), vec4<f32>(), score == vec4<f32>(EMPTY_M));
}

fn pick(o: Four, vector: u32) -> vec4<f32> {
  return select(select(o.v0, o.v1, vector == 1u), select(o.v2, o.v3, vector == 3u), vector >= 2u);
}

// Writes a vector's unit of o, merged with what the lane's earlier chunks left there.
fn put_unit(to: u32, unit: u32, o: vec4<f32>, vector: u32, now: MaxSum, earlier: MaxSum, merge: bool) {
  if (to == NOWHERE || unit >= params.rank_units) {
    return;
  }
  let at = to * params.rank_units + unit;
  // Never -0, whose sign could depend on masked tokens added with weight 0.
  var state = SoftmaxState(select(o, vec4<f32>(), o == vec4<f32>()), now.m[vector], now.l[vector]);
  if (merge) {
    state = softmax_merge(SoftmaxState(partial_o[at], earlier.m[vector], earlier.l[vector]), state);
  }
  partial_o[at] = state.o;
}

// As softmax_merge, for m and l of every vector.
fn merge_max_sum(a: MaxSum, b: MaxSum) -> MaxSum {
  let m = max(a.m, b.m);
  let weight_a = select(exp(max(a.m - m, vec4<f32>(-200.0))), vec4<f32>(1.0), a.m == m);
  let weight_b = select(exp(max(b.m - m, vec4<f32>(-200.0))), vec4<f32>(1.0), b.m == m);
  let l = fma(weight_a, a.l, weight_b * b.l);
  let only_a = b.l == vec4<f32>();
  let only_b = a.l == vec4<f32>();
  return MaxSum(select(select(m, b.m, only_b), a.m, only_a), select(select(l, b.l, only_b), a.l, only_a));
}

// Chunks first_chunk, first_chunk + chunk_step, ... that start below `end`, the greatest limit (or the chunk's end). `table` is the
// slot's first entry in block_table. Call in uniform control flow, all arguments but `thread` uniform.
fn mla_attend(queries: Queries, table: u32, first_chunk: u32, chunk_step: u32, end: u32, thread: u32) {
  var run = MaxSum(vec4<f32>(EMPTY_M), vec4<f32>());
  var chunk = first_chunk;
  for (var chunks = steps(first_chunk, (end + CHUNK - 1u) / CHUNK, chunk_step); chunks > 0u; chunks--) {
    let first = chunk * CHUNK;
    let count = min(CHUNK, end - first);
    if (thread * BLOCK < count) {
      blocks[thread] = block_table[table + first / BLOCK + thread];
    }
    if (thread < count) {
      let physical = block_table[table + (first + thread) / BLOCK];
      let score = latent_scores(queries.at, latent_base(physical, params.key_units, thread % BLOCK));
      weights[thread] = select(vec4<f32>(EMPTY_M), score, vec4<u32>(first + thread) < queries.limit);
    }
    workgroupBarrier();
    if (thread < params.stats) {
      var own = vec4<f32>(EMPTY_M);
      var t = thread;
      for (var left = steps(thread, count, params.stats); left > 0u; left--) {
        own = max(own, weights[t]);
        t += params.stats;
      }
      maxima[thread] = own;
    }
    workgroupBarrier();
    var now = MaxSum(vec4<f32>(EMPTY_M), vec4<f32>());
    for (var left = params.stats; left > 0u; left--) {
      now.m = max(now.m, maxima[params.stats - left]);
    }
    if (thread < count) {
      weights[thread] = score_weights(weights[thread], now.m);
    }
    workgroupBarrier();
    if (thread < params.stats) {
      var own = vec4<f32>();
      var t = thread;
      for (var left = steps(thread, count, params.stats); left > 0u; left--) {
        own += weights[t];
        t += params.stats;
      }
      sums[thread] = own;
    }
    workgroupBarrier();
    for (var left = params.stats; left > 0u; left--) {
      now.l += sums[params.stats - left];
    }

    let merge = chunk != first_chunk;
    var unit_start = 0u;
    for (var rounds = steps(0u, params.rank_units, params.lanes); rounds > 0u; rounds--) {
      let slices = params.slices;
      let unit = unit_start + thread / slices;
      var o: Four;
      if (thread < params.lanes * slices && unit < params.rank_units) {
        o = weigh_latent(unit, thread % slices, slices, count);
      }
      for (var vectors = params.vectors; vectors > 0u; vectors--) {
        let vector = params.vectors - vectors;
        let to = queries.to[vector];
        slice_o[thread] = pick(o, vector);
        workgroupBarrier();
        if (thread < params.lanes) {
          var total = slice_o[thread * slices];
          for (var left = slices - 1u; left > 0u; left--) {
            total += slice_o[thread * slices + slices - left];
          }
          put_unit(to, unit_start + thread, total, vector, now, run, merge);
        }
        workgroupBarrier();
      }
      unit_start += params.lanes;
    }
    // The next chunk overwrites weights and blocks.
    workgroupBarrier();
    run = merge_max_sum(run, now);
    chunk += chunk_step;
  }
  if (thread == 0u) {
    for (var vectors = params.vectors; vectors > 0u; vectors--) {
      let vector = vectors - 1u;
      if (queries.to[vector] != NOWHERE) {
        partial_ml[queries.to[vector]] = vec2<f32>(run.m[vector], run.l[vector]);
      }
    }
  }
}
