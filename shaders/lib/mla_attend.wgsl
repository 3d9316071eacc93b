// Attention of 4 QUADS query vectors over chunks of a sequence's latent, which they read together: what mla_split (heads of a row,
// one chunk) and mla_prefill (4 rows of a head, the chunks of a merge lane) have in common.
//
//   s_t = scale * q . latent_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) latent_t[0..R)      t < limit
//
// The kernel declares the bindings and params of mla.ts. Needs latent_layout.wgsl, a KvUnit, and softmax_state.wgsl.
// Scores: a token a thread. Values: thread = (unit, slice) sums one unit (4 elements) over every slices-th token; then slices
// are added in order. A vector's bits depend on its own query and limit only, never on the other vectors.
// For GPUs; software adapters take mla_attend_row.wgsl. Loops that wait for memory ask for UNROLL units at once, then use them in order.
//
// Variants: QUADS, fours of vectors, which changes no bit; LANES units side by side, summed by SLICES threads each, from the rank.
const QUADS: u32 = 1; // variant
const LANES: u32 = 64; // variant
const SLICES: u32 = 4; // variant
/// At least CHUNK: a thread has one token at most.
const THREADS: u32 = 256;
const UNROLL: u32 = 4;
const VECTORS: u32 = 4u * QUADS;
// Threads that scan the scores of four vectors.
const STATS: u32 = 16;

// By fours.
struct Queries {
  // First unit in q_abs of each vector.
  at: array<vec4<u32>, QUADS>,
  // Tokens attended to; 0 for none.
  limit: array<vec4<u32>, QUADS>,
  // Index in partial_ml; units follow at to * rank_units in partial_o. NOWHERE: nothing is written.
  to: array<vec4<u32>, QUADS>,
}
const NOWHERE: u32 = 0xffffffffu;

// Scores, then weights exp(s - m), of the chunk's tokens: [quad][token].
var<workgroup> weights: array<vec4<f32>, QUADS * CHUNK>;
// [quad][thread that scans].
var<workgroup> maxima: array<vec4<f32>, QUADS * STATS>;
var<workgroup> sums: array<vec4<f32>, QUADS * STATS>;
// [lane][slice], of one vector at a time.
var<workgroup> slice_o: array<vec4<f32>, THREADS>;
var<workgroup> blocks: array<u32, CHUNK / BLOCK>;

// m and l of four vectors.
struct MaxSum {
  m: vec4<f32>,
  l: vec4<f32>,
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
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

// q . latent of every vector so far, and one unit more.
fn add_score(so_far: array<vec4<f32>, VECTORS>, queries: Queries, unit: u32, k: vec4<f32>) -> array<vec4<f32>, VECTORS> {
  var s = so_far;
  for (var quad = 0u; quad < QUADS; quad++) {
    let at = queries.at[quad] + vec4<u32>(unit);
    s[4u * quad] = fma(q_abs[at.x], k, s[4u * quad]);
    s[4u * quad + 1u] = fma(q_abs[at.y], k, s[4u * quad + 1u]);
    s[4u * quad + 2u] = fma(q_abs[at.z], k, s[4u * quad + 2u]);
    s[4u * quad + 3u] = fma(q_abs[at.w], k, s[4u * quad + 3u]);
  }
  return s;
}

// q . latent of every vector, for the token whose unit 0 is `key`.
fn latent_scores(queries: Queries, key: u32) -> array<vec4<f32>, QUADS> {
  var s = array<vec4<f32>, VECTORS>();
  var unit = 0u;
  for (var left = params.key_units / UNROLL; left > 0u; left--) {
    var keys = array<vec4<f32>, UNROLL>();
    for (var u = 0u; u < UNROLL; u++) {
      keys[u] = load_key(key, unit + u);
    }
    for (var u = 0u; u < UNROLL; u++) {
      s = add_score(s, queries, unit + u, keys[u]);
    }
    unit += UNROLL;
  }
  for (var left = params.key_units % UNROLL; left > 0u; left--) {
    s = add_score(s, queries, unit, load_key(key, unit));
    unit++;
  }
  var scores = array<vec4<f32>, QUADS>();
  for (var quad = 0u; quad < QUADS; quad++) {
    let at = 4u * quad;
    scores[quad] = params.scale * vec4<f32>(sum4(s[at]), sum4(s[at + 1u]), sum4(s[at + 2u]), sum4(s[at + 3u]));
  }
  return scores;
}

// 4 elements of the chunk's token t.
fn chunk_latent(t: u32, unit: u32) -> vec4<f32> {
  return load_latent(token_base(blocks[t / BLOCK], t % BLOCK), unit);
}

// The weighed sum of every vector so far, and one token more.
fn add_value(so_far: array<vec4<f32>, VECTORS>, t: u32, v: vec4<f32>) -> array<vec4<f32>, VECTORS> {
  var o = so_far;
  for (var quad = 0u; quad < QUADS; quad++) {
    let w = weights[quad * CHUNK + t];
    o[4u * quad] = fma(vec4<f32>(w.x), v, o[4u * quad]);
    o[4u * quad + 1u] = fma(vec4<f32>(w.y), v, o[4u * quad + 1u]);
    o[4u * quad + 2u] = fma(vec4<f32>(w.z), v, o[4u * quad + 2u]);
    o[4u * quad + 3u] = fma(vec4<f32>(w.w), v, o[4u * quad + 3u]);
  }
  return o;
}

// sum of weight * latent over tokens first, first + step, ... < count of the chunk.
fn weigh_latent(unit: u32, first: u32, step: u32, count: u32) -> array<vec4<f32>, VECTORS> {
  var o = array<vec4<f32>, VECTORS>();
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

// What registers hold isn't indexed by what isn't constant: compilers would move it to memory.
fn pick(o: array<vec4<f32>, VECTORS>, vector: u32) -> vec4<f32> {
  var picked = o[0];
  for (var i = 1u; i < VECTORS; i++) {
    picked = select(picked, o[i], vector == i);
  }
  return picked;
}

fn pick_to(queries: Queries, vector: u32) -> u32 {
  var to = queries.to[0];
  for (var quad = 1u; quad < QUADS; quad++) {
    to = select(to, queries.to[quad], vector / 4u == quad);
  }
  return to[vector % 4u];
}

// (m, l) of a vector.
fn pick_sum(of_quads: array<MaxSum, QUADS>, vector: u32) -> vec2<f32> {
  var m = of_quads[0].m;
  var l = of_quads[0].l;
  for (var quad = 1u; quad < QUADS; quad++) {
    m = select(m, of_quads[quad].m, vector / 4u == quad);
    l = select(l, of_quads[quad].l, vector / 4u == quad);
  }
  return vec2<f32>(m[vector % 4u], l[vector % 4u]);
}

// Writes a vector's unit of o, merged with what the lane's earlier chunks left there.
fn put_unit(to: u32, unit: u32, o: vec4<f32>, now: vec2<f32>, earlier: vec2<f32>, merge: bool) {
  if (to == NOWHERE || unit >= params.rank_units) {
    return;
  }
  let at = to * params.rank_units + unit;
  // Never -0, whose sign could depend on masked tokens added with weight 0.
  var state = SoftmaxState(select(o, vec4<f32>(), o == vec4<f32>()), now.x, now.y);
  if (merge) {
    state = softmax_merge(SoftmaxState(partial_o[at], earlier.x, earlier.y), state);
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
  var run = array<MaxSum, QUADS>();
  for (var quad = 0u; quad < QUADS; quad++) {
    run[quad].m = vec4<f32>(EMPTY_M);
  }
  // The quad whose scores a thread scans, and from which token on.
  let scanned = thread / STATS;
  let first_scanned = scanned * CHUNK + thread % STATS;
  var chunk = first_chunk;
  for (var chunks = steps(first_chunk, (end + CHUNK - 1u) / CHUNK, chunk_step); chunks > 0u; chunks--) {
    let first = chunk * CHUNK;
    let count = min(CHUNK, end - first);
    if (thread * BLOCK < count) {
      blocks[thread] = block_table[table + first / BLOCK + thread];
    }
    var scores = array<vec4<f32>, QUADS>();
    if (thread < count) {
      let physical = block_table[table + (first + thread) / BLOCK];
      scores = latent_scores(queries, token_base(physical, thread % BLOCK));
    }
    for (var quad = 0u; quad < QUADS; quad++) {
      weights[quad * CHUNK + thread] =
        select(vec4<f32>(EMPTY_M), scores[quad], vec4<u32>(first + thread) < queries.limit[quad]);
    }
    workgroupBarrier();
    if (scanned < QUADS) {
      var own = vec4<f32>(EMPTY_M);
      var t = first_scanned;
      for (var left = CHUNK / STATS; left >= 1u; left--) {
        own = max(own, weights[t]);
        t += STATS;
      }
      maxima[thread] = own;
    }
    workgroupBarrier();
    var now = array<MaxSum, QUADS>();
    for (var quad = 0u; quad < QUADS; quad++) {
      var m = vec4<f32>(EMPTY_M);
      for (var left = STATS; left >= 1u; left--) {
        m = max(m, maxima[(quad + 1u) * STATS - left]);
      }
      now[quad].m = m;
      weights[quad * CHUNK + thread] = score_weights(weights[quad * CHUNK + thread], m);
    }
    workgroupBarrier();
    if (scanned < QUADS) {
      var own = vec4<f32>();
      var t = first_scanned;
      for (var left = CHUNK / STATS; left >= 1u; left--) {
        own += weights[t];
        t += STATS;
      }
      sums[thread] = own;
    }
    workgroupBarrier();
    for (var quad = 0u; quad < QUADS; quad++) {
      var l = vec4<f32>();
      for (var left = STATS; left >= 1u; left--) {
        l += sums[(quad + 1u) * STATS - left];
      }
      now[quad].l = l;
    }

    let merge = chunk != first_chunk;
    var unit_start = 0u;
    for (var rounds = steps(0u, params.rank_units, LANES); rounds > 0u; rounds--) {
      let unit = unit_start + thread / SLICES;
      var o = array<vec4<f32>, VECTORS>();
      if (thread < LANES * SLICES && unit < params.rank_units) {
        o = weigh_latent(unit, thread % SLICES, SLICES, count);
      }
      for (var vector = 0u; vector < VECTORS; vector++) {
        slice_o[thread] = pick(o, vector);
        workgroupBarrier();
        if (thread < LANES) {
          var total = slice_o[thread * SLICES];
          for (var slice = 1u; slice < SLICES; slice++) {
            total += slice_o[thread * SLICES + slice];
          }
          put_unit(pick_to(queries, vector), unit_start + thread, total, pick_sum(now, vector), pick_sum(run, vector), merge);
        }
        workgroupBarrier();
      }
      unit_start += LANES;
    }
    // The next chunk overwrites weights and blocks.
    workgroupBarrier();
    for (var quad = 0u; quad < QUADS; quad++) {
      run[quad] = merge_max_sum(run[quad], now[quad]);
    }
    chunk += chunk_step;
  }
  if (thread == 0u) {
    for (var vector = 0u; vector < VECTORS; vector++) {
      let to = pick_to(queries, vector);
      if (to != NOWHERE) {
        partial_ml[to] = pick_sum(run, vector);
      }
    }
  }
}
