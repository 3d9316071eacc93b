// Attention of up to 8 query vectors over chunks of a sequence's latent, which they read together: what mla_split (8 heads of a
// row, one chunk) and mla_prefill (8 rows of a head, the chunks of a merge lane) have in common.
//
//   s_t = scale * q . latent_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) latent_t[0..R)      t < limit
//
// The kernel declares the bindings of mla.ts and its params. Needs latent_layout.wgsl, a KvUnit, and softmax_state.wgsl.
// Scores: a token a thread. Values: a thread sums one unit (4 elements) over every SLICES-th token; then slices are added in
// order. A vector's bits depend on its own query and limit only, never on the other vectors.
// Variants, chosen by mla.ts: TILES 1 or 2, of 4 vectors each. GPUs: STATS = 16 threads scan scores; LANES units side by
// side, LANES * SLICES <= THREADS = 256. Software adapters: STATS = LANES = THREADS = 8, SLICES = 1: few barriers.
const TILES: u32 = 2; // variant
const THREADS: u32 = 256; // variant
const STATS: u32 = 16; // variant
const LANES: u32 = 64; // variant
const SLICES: u32 = 4; // variant
const SLICE_ROOM: u32 = select(1u, LANES * SLICES, SLICES > 1u);

// Query vectors by tile of 4: a and b.
struct Queries {
  // First unit in q_abs.
  at_a: vec4<u32>,
  at_b: vec4<u32>,
  // Tokens attended to; 0 for none.
  limit_a: vec4<u32>,
  limit_b: vec4<u32>,
  // Index in partial_ml; units follow at partial * rank_units in partial_o. NOWHERE: nothing is written.
  to_a: vec4<u32>,
  to_b: vec4<u32>,
}
const NOWHERE: u32 = 0xffffffffu;

// Scores, then weights exp(s - m), of the chunk's tokens: [token][tile].
var<workgroup> weights: array<vec4<f32>, CHUNK * TILES>;
// [thread][tile]
var<workgroup> maxima: array<vec4<f32>, STATS * TILES>;
var<workgroup> sums: array<vec4<f32>, STATS * TILES>;
// [lane][slice], of one vector at a time.
var<workgroup> slice_o: array<vec4<f32>, SLICE_ROOM>;
var<workgroup> blocks: array<u32, CHUNK / BLOCK>;

struct Pair {
  a: vec4<f32>,
  b: vec4<f32>,
}

struct Eight {
  a0: vec4<f32>,
  a1: vec4<f32>,
  a2: vec4<f32>,
  a3: vec4<f32>,
  b0: vec4<f32>,
  b1: vec4<f32>,
  b2: vec4<f32>,
  b3: vec4<f32>,
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

// q . latent of every vector, for the token whose unit 0 is `key`.
fn latent_scores(at_a: vec4<u32>, at_b: vec4<u32>, key: u32) -> Pair {
  var s: Eight;
  for (var unit = 0u; unit < params.key_units; unit++) {
    let k = kv_unpack(latent_cache[key + unit * BLOCK]);
    s.a0 = fma(q_abs[at_a.x + unit], k, s.a0);
    s.a1 = fma(q_abs[at_a.y + unit], k, s.a1);
    s.a2 = fma(q_abs[at_a.z + unit], k, s.a2);
    s.a3 = fma(q_abs[at_a.w + unit], k, s.a3);
    if (TILES > 1u) {
      s.b0 = fma(q_abs[at_b.x + unit], k, s.b0);
      s.b1 = fma(q_abs[at_b.y + unit], k, s.b1);
      s.b2 = fma(q_abs[at_b.z + unit], k, s.b2);
      s.b3 = fma(q_abs[at_b.w + unit], k, s.b3);
    }
  }
  return Pair(
    params.scale * vec4<f32>(sum4(s.a0), sum4(s.a1), sum4(s.a2), sum4(s.a3)),
    params.scale * vec4<f32>(sum4(s.b0), sum4(s.b1), sum4(s.b2), sum4(s.b3)),
  );
}

// sum of weight * latent over tokens first, first + SLICES, ... < count of the chunk.
fn weigh_latent(unit: u32, first: u32, count: u32) -> Eight {
  var o: Eight;
  for (var t = first; t < count; t += SLICES) {
    let v = kv_unpack(latent_cache[latent_base(blocks[t / BLOCK], params.key_units, t % BLOCK) + unit * BLOCK]);
    let a = weights[t * TILES];
    o.a0 = fma(vec4<f32>(a.x), v, o.a0);
    o.a1 = fma(vec4<f32>(a.y), v, o.a1);
    o.a2 = fma(vec4<f32>(a.z), v, o.a2);
    o.a3 = fma(vec4<f32>(a.w), v, o.a3);
    if (TILES > 1u) {
      let b = weights[t * TILES + 1u];
      o.b0 = fma(vec4<f32>(b.x), v, o.b0);
      o.b1 = fma(vec4<f32>(b.y), v, o.b1);
      o.b2 = fma(vec4<f32>(b.z), v, o.b2);
      o.b3 = fma(vec4<f32>(b.w), v, o.b3);
    }
  }
  return o;
}

// Exactly 0 for a masked token, whose score is EMPTY_M.
fn score_weights(score: vec4<f32>, m: vec4<f32>) -> vec4<f32> {
  return select(exp(max(score - m, vec4<f32>(-200.0))), vec4<f32>(), score == vec4<f32>(EMPTY_M));
}

// Writes a vector's unit of o, merged with what the lane's earlier chunks left there.
fn put_unit(to: u32, unit: u32, o: vec4<f32>, m: f32, l: f32, earlier: vec2<f32>, merge: bool) {
  if (to == NOWHERE || unit >= params.rank_units) {
    return;
  }
  let at = to * params.rank_units + unit;
  // Never -0, whose sign could depend on masked tokens added with weight 0.
  var state = SoftmaxState(select(o, vec4<f32>(), o == vec4<f32>()), m, l);
  if (merge) {
    state = softmax_merge(SoftmaxState(partial_o[at], earlier.x, earlier.y), state);
  }
  partial_o[at] = state.o;
}

// As put_unit, for one vector of a whole workgroup: `o` is a thread's sum over its slice's tokens.
fn put_slices(thread: u32, to: u32, first: u32, o: vec4<f32>, m: f32, l: f32, earlier: vec2<f32>, merge: bool) {
  if (thread < LANES * SLICES) {
    slice_o[thread] = o;
  }
  workgroupBarrier();
  if (thread < LANES) {
    var total = slice_o[thread * SLICES];
    for (var i = 1u; i < SLICES; i++) {
      total += slice_o[thread * SLICES + i];
    }
    put_unit(to, first + thread, total, m, l, earlier, merge);
  }
  workgroupBarrier();
}

struct MaxSum {
  m: vec4<f32>,
  l: vec4<f32>,
}

// m and l of 4 vectors, as softmax_merge.
fn merge_ml(a: MaxSum, b: MaxSum) -> MaxSum {
  let m = max(a.m, b.m);
  let weight_a = select(exp(max(a.m - m, vec4<f32>(-200.0))), vec4<f32>(1.0), a.m == m);
  let weight_b = select(exp(max(b.m - m, vec4<f32>(-200.0))), vec4<f32>(1.0), b.m == m);
  let l = fma(weight_a, a.l, weight_b * b.l);
  let only_a = b.l == vec4<f32>();
  let only_b = a.l == vec4<f32>();
  return MaxSum(select(select(m, b.m, only_b), a.m, only_a), select(select(l, b.l, only_b), a.l, only_a));
}

fn put_ml(to: u32, m: f32, l: f32) {
  if (to != NOWHERE) {
    partial_ml[to] = vec2<f32>(m, l);
  }
}

// Tokens [chunk * CHUNK, ...) of chunks chunk, chunk + chunk_step, ... below `end`, the greatest limit. `table` is the slot's
// first entry in block_table. Call in uniform control flow, all arguments but `thread` uniform.
fn mla_attend(queries: Queries, table: u32, first_chunk: u32, chunk_step: u32, end: u32, thread: u32) {
  var run_m = Pair(vec4<f32>(EMPTY_M), vec4<f32>(EMPTY_M));
  var run_l = Pair(vec4<f32>(), vec4<f32>());
  for (var chunk = first_chunk; chunk * CHUNK < end; chunk += chunk_step) {
    let first = chunk * CHUNK;
    let count = min(CHUNK, end - first);
    for (var i = thread; i * BLOCK < count; i += THREADS) {
      blocks[i] = block_table[table + first / BLOCK + i];
    }
    for (var t = thread; t < count; t += THREADS) {
      let physical = block_table[table + (first + t) / BLOCK];
      let score = latent_scores(queries.at_a, queries.at_b, latent_base(physical, params.key_units, t % BLOCK));
      weights[t * TILES] = select(vec4<f32>(EMPTY_M), score.a, vec4<u32>(first + t) < queries.limit_a);
      if (TILES > 1u) {
        weights[t * TILES + 1u] = select(vec4<f32>(EMPTY_M), score.b, vec4<u32>(first + t) < queries.limit_b);
      }
    }
    // With STATS = THREADS a thread scans only what it wrote.
    if (STATS < THREADS) {
      workgroupBarrier();
    }
    if (thread < STATS) {
      var own = Pair(vec4<f32>(EMPTY_M), vec4<f32>(EMPTY_M));
      for (var t = thread; t < count; t += STATS) {
        own.a = max(own.a, weights[t * TILES]);
        own.b = max(own.b, weights[t * TILES + TILES - 1u]);
      }
      maxima[thread * TILES] = own.a;
      if (TILES > 1u) {
        maxima[thread * TILES + 1u] = own.b;
      }
    }
    workgroupBarrier();
    var m = Pair(vec4<f32>(EMPTY_M), vec4<f32>(EMPTY_M));
    for (var i = 0u; i < STATS; i++) {
      m.a = max(m.a, maxima[i * TILES]);
      m.b = max(m.b, maxima[i * TILES + TILES - 1u]);
    }
    for (var t = thread; t < count; t += THREADS) {
      weights[t * TILES] = score_weights(weights[t * TILES], m.a);
      if (TILES > 1u) {
        weights[t * TILES + 1u] = score_weights(weights[t * TILES + 1u], m.b);
      }
    }
    if (STATS < THREADS) {
      workgroupBarrier();
    }
    if (thread < STATS) {
      var own = Pair(vec4<f32>(), vec4<f32>());
      for (var t = thread; t < count; t += STATS) {
        own.a += weights[t * TILES];
        own.b += weights[t * TILES + TILES - 1u];
      }
      sums[thread * TILES] = own.a;
      if (TILES > 1u) {
        sums[thread * TILES + 1u] = own.b;
      }
    }
    workgroupBarrier();
    var l = Pair(vec4<f32>(), vec4<f32>());
    for (var i = 0u; i < STATS; i++) {
      l.a += sums[i * TILES];
      l.b += sums[i * TILES + TILES - 1u];
    }

    let merge = chunk != first_chunk;
    for (var unit_start = 0u; unit_start < params.rank_units; unit_start += LANES) {
      if (SLICES == 1u) {
        let unit = unit_start + thread;
        if (unit < params.rank_units) {
          let o = weigh_latent(unit, 0u, count);
          put_unit(queries.to_a.x, unit, o.a0, m.a.x, l.a.x, vec2<f32>(run_m.a.x, run_l.a.x), merge);
          put_unit(queries.to_a.y, unit, o.a1, m.a.y, l.a.y, vec2<f32>(run_m.a.y, run_l.a.y), merge);
          put_unit(queries.to_a.z, unit, o.a2, m.a.z, l.a.z, vec2<f32>(run_m.a.z, run_l.a.z), merge);
          put_unit(queries.to_a.w, unit, o.a3, m.a.w, l.a.w, vec2<f32>(run_m.a.w, run_l.a.w), merge);
          if (TILES > 1u) {
            put_unit(queries.to_b.x, unit, o.b0, m.b.x, l.b.x, vec2<f32>(run_m.b.x, run_l.b.x), merge);
            put_unit(queries.to_b.y, unit, o.b1, m.b.y, l.b.y, vec2<f32>(run_m.b.y, run_l.b.y), merge);
            put_unit(queries.to_b.z, unit, o.b2, m.b.z, l.b.z, vec2<f32>(run_m.b.z, run_l.b.z), merge);
            put_unit(queries.to_b.w, unit, o.b3, m.b.w, l.b.w, vec2<f32>(run_m.b.w, run_l.b.w), merge);
          }
        }
      } else {
        var o: Eight;
        let unit = unit_start + thread / SLICES;
        if (thread < LANES * SLICES && unit < params.rank_units) {
          o = weigh_latent(unit, thread % SLICES, count);
        }
        put_slices(thread, queries.to_a.x, unit_start, o.a0, m.a.x, l.a.x, vec2<f32>(run_m.a.x, run_l.a.x), merge);
        put_slices(thread, queries.to_a.y, unit_start, o.a1, m.a.y, l.a.y, vec2<f32>(run_m.a.y, run_l.a.y), merge);
        put_slices(thread, queries.to_a.z, unit_start, o.a2, m.a.z, l.a.z, vec2<f32>(run_m.a.z, run_l.a.z), merge);
        put_slices(thread, queries.to_a.w, unit_start, o.a3, m.a.w, l.a.w, vec2<f32>(run_m.a.w, run_l.a.w), merge);
        if (TILES > 1u) {
          put_slices(thread, queries.to_b.x, unit_start, o.b0, m.b.x, l.b.x, vec2<f32>(run_m.b.x, run_l.b.x), merge);
          put_slices(thread, queries.to_b.y, unit_start, o.b1, m.b.y, l.b.y, vec2<f32>(run_m.b.y, run_l.b.y), merge);
          put_slices(thread, queries.to_b.z, unit_start, o.b2, m.b.z, l.b.z, vec2<f32>(run_m.b.z, run_l.b.z), merge);
          put_slices(thread, queries.to_b.w, unit_start, o.b3, m.b.w, l.b.w, vec2<f32>(run_m.b.w, run_l.b.w), merge);
        }
      }
    }
    // The next chunk overwrites weights and blocks.
    workgroupBarrier();
    let merged_a = merge_ml(MaxSum(run_m.a, run_l.a), MaxSum(m.a, l.a));
    let merged_b = merge_ml(MaxSum(run_m.b, run_l.b), MaxSum(m.b, l.b));
    run_m = Pair(merged_a.m, merged_b.m);
    run_l = Pair(merged_a.l, merged_b.l);
  }
  if (thread == 0u) {
    put_ml(queries.to_a.x, run_m.a.x, run_l.a.x);
    put_ml(queries.to_a.y, run_m.a.y, run_l.a.y);
    put_ml(queries.to_a.z, run_m.a.z, run_l.a.z);
    put_ml(queries.to_a.w, run_m.a.w, run_l.a.w);
    if (TILES > 1u) {
      put_ml(queries.to_b.x, run_m.b.x, run_l.b.x);
      put_ml(queries.to_b.y, run_m.b.y, run_l.b.y);
      put_ml(queries.to_b.z, run_m.b.z, run_l.b.z);
      put_ml(queries.to_b.w, run_m.b.w, run_l.b.w);
    }
  }
}
