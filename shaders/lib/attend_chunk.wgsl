// A hardware adapter's workgroup attends to a chunk with a tile of a kv head's query heads: what attention_split, whose keys all
// lie in the cache, and attention_append, which has the newest by itself, have in common; so their bits are the same.
//
//   s_t = scale * q . k_t,   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) v_t      skip <= t < count; window.wgsl: s capped
//   sinks.wgsl: of the chunk with the row's own entry, sinks beside the scores
//
// Its heads share the read of K and V. Scores: a key a thread. Values: SLICES token slices x HEAD_UNITS threads.
// Memory is waited for seldom: STEP units of a key are asked for before those before them are used, and the first values before the
// scores.
// Joined after lib/steps.wgsl, lib/softmax_state.wgsl, lib/window.wgsl and lib/sinks.wgsl. The kernel declares the bindings k_cache, v_cache, block_table, partial_o,
// partial_ml, the params head_units, stats, max_chunks, scale, and
//
//   fn sum4(v: vec4<f32>) -> f32                                        (x + y) + (z + w)
//   fn query(at: u32, unit: u32) -> vec4<f32>                           4 dims of the query whose unit 0 is `at`
//   fn newest_key(unit: u32) -> vec4<f32>                               4 dims of a key that isn't read from the cache
//   fn weighed_value(cached: vec4<f32>, token: u32) -> vec4<f32>        4 dims of a value that was asked for
//
// Variants: HEAD_TILE 1, 2 or 4, by the query heads of a kv head; STEP, a divisor of HEAD_UNITS; VALUES; UNROLLED. The last three
// change no bit.
const HEAD_TILE: u32 = 4; // variant
const STEP: u32 = 8; // variant
// Values that a thread asks for at a time.
const VALUES: u32 = 4; // variant
// Whether the short loops over workgroup memory have bounds that a compiler may unroll.
const UNROLLED: bool = true; // variant
const THREADS: u32 = CHUNK;
// Threads that scan scores and weights, each CHUNK / STATS of them.
const STATS: u32 = 16u;
const SLICES: u32 = min(16u, THREADS / HEAD_UNITS);
// Slices of two heads are summed at a time.
const PAIR: u32 = min(HEAD_TILE, 2u);

// Scores, then weights exp(s - m), of the chunk's keys for the heads of the tile.
var<workgroup> weights: array<vec4<f32>, CHUNK>;
var<workgroup> maxima: array<vec4<f32>, STATS>;
var<workgroup> sums: array<vec4<f32>, STATS>;
var<workgroup> slice_o: array<vec4<f32>, PAIR * SLICES * HEAD_UNITS>;

// STEP units from `first` on of the key whose unit 0 is `key`, as they are stored, then what has their scales.
fn load_keys(key: u32, first: u32) -> array<KvUnit, 2u * STEP> {
  var units = array<KvUnit, 2u * STEP>();
  for (var i = 0u; i < STEP; i++) {
    units[i] = k_cache[key + (first + i) * BLOCK];
    units[STEP + i] = k_cache[key + kv_scale_unit(HEAD_UNITS, first + i) * BLOCK];
  }
  return units;
}

// 4 dims of the value whose unit 0 is `value`.
fn load_value(value: u32, unit: u32) -> vec4<f32> {
  return kv_unpack(v_cache[value + unit], kv_scale(v_cache[value + kv_scale_unit(HEAD_UNITS, unit)], unit));
}

// q . k of the tile's heads, whose units start at `at`; `is_newest`: of the key that isn't in the cache.
fn key_scores(at: vec4<u32>, key: u32, is_newest: bool) -> vec4<f32> {
  var a0 = vec4<f32>();
  var a1 = vec4<f32>();
  var a2 = vec4<f32>();
  var a3 = vec4<f32>();
  var first = 0u;
  var next = array<KvUnit, 2u * STEP>();
  if (!is_newest) {
    next = load_keys(key, 0u);
  }
  for (var left = select(params.head_units, HEAD_UNITS, UNROLLED) / STEP; left >= 1u; left--) {
    let units = next;
    if (!is_newest && left > 1u) {
      next = load_keys(key, first + STEP);
    }
    for (var i = 0u; i < STEP; i++) {
      let unit = first + i;
      var k: vec4<f32>;
      if (is_newest) {
        k = newest_key(unit);
      } else {
        k = kv_unpack(units[i], kv_scale(units[STEP + i], unit));
      }
      a0 = fma(query(at.x, unit), k, a0);
      if (HEAD_TILE > 1u) {
        a1 = fma(query(at.y, unit), k, a1);
      }
      if (HEAD_TILE > 2u) {
        a2 = fma(query(at.z, unit), k, a2);
        a3 = fma(query(at.w, unit), k, a3);
      }
    }
    first += STEP;
  }
  return vec4<f32>(sum4(a0), sum4(a1), sum4(a2), sum4(a3));
}

// STATS, or fewer where there are fewer of what is counted.
fn scans(most: u32) -> u32 {
  return select(min(params.stats, most), min(STATS, most), UNROLLED);
}

// Entries of a head's cache: a chunk, or its first ones.
struct Chunk {
  // Of the head.
  table: u32,
  cache_head: u32,
  // Its first entry.
  first: u32,
  // Entries attended to are [skip, count). Those from `cached` on don't lie in the cache: none, or the last.
  skip: u32,
  count: u32,
  cached: u32,
}

// Tokens of the chunk that begins at `first` before the window of a row whose own entry is `last`; it may be more than the chunk has.
fn unseen(first: u32, last: u32) -> u32 {
  if (WINDOWED) {
    return max(first, first_seen(last)) - first;
  }
  return 0u;
}

// Whether any that is attended to lies in the cache.
fn has_cached(chunk: Chunk) -> bool {
  return chunk.cached > chunk.skip;
}

// A unit of the values of VALUES tokens from `token` on, SLICES apart; beyond those in the cache of the last again, and before the
// window of the first that is seen.
fn load_values(chunk: Chunk, unit: u32, token: u32) -> array<vec4<f32>, VALUES> {
  var values = array<vec4<f32>, VALUES>();
  for (var i = 0u; i < VALUES; i++) {
    var t = min(token + i * SLICES, chunk.cached - 1u);
    if (WINDOWED) {
      t = max(t, chunk.skip);
    }
    let physical = entry_block(chunk.table, chunk.first / BLOCK + t / BLOCK);
    values[i] = load_value(value_base(physical, block_heads(), block_head(chunk.cache_head), t % BLOCK), unit);
  }
  return values;
}

// The values that a thread needs first: to be asked for before anything else is waited for; none where none is in the cache.
fn first_values(chunk: Chunk, thread: u32) -> array<vec4<f32>, VALUES> {
  if (!has_cached(chunk)) {
    return array<vec4<f32>, VALUES>();
  }
  return load_values(chunk, thread % HEAD_UNITS, thread / HEAD_UNITS);
}

// Writes the partial of each of the tile's first `tile_size` heads, `partial` being the first one's; `queries`: their units 0;
// `sinks`: theirs, or EMPTY_M.
fn attend_chunk(
  chunk: Chunk,
  early: array<vec4<f32>, VALUES>,
  queries: vec4<u32>,
  sinks: vec4<f32>,
  partial: u32,
  tile_size: u32,
  thread: u32,
) {
  let lane = thread % HEAD_UNITS;
  let slice = thread / HEAD_UNITS;
  let batches = steps(slice, chunk.count, VALUES * SLICES);
  var values = early;
  var scores = vec4<f32>(EMPTY_M);
  if (thread < chunk.cached && (!WINDOWED || thread >= chunk.skip)) {
    let physical = entry_block(chunk.table, (chunk.first + thread) / BLOCK);
    let key = key_base(physical, block_heads(), block_head(chunk.cache_head), thread % BLOCK);
    scores = cap_scores(params.scale * key_scores(queries, key, false));
  } else if (thread >= chunk.cached && thread < chunk.count) {
    scores = cap_scores(params.scale * key_scores(queries, 0u, true));
  }
  weights[thread] = scores;
  workgroupBarrier();
  if (thread < STATS) {
    var own = weights[thread];
    var at = thread;
    for (var left = scans(CHUNK / STATS) - 1u; left >= 1u; left--) {
      at += STATS;
      own = max(own, weights[at]);
    }
    maxima[thread] = own;
  }
  workgroupBarrier();
  var m = maxima[0];
  for (var left = scans(STATS) - 1u; left >= 1u; left--) {
    m = max(m, maxima[left]);
  }
  if (SINKS) {
    m = max(m, sinks);
  }
  weights[thread] = select(vec4<f32>(), exp(scores - m), thread < chunk.count && (!WINDOWED || thread >= chunk.skip));
  workgroupBarrier();
  // Read only after the next barrier, by thread 0.
  if (thread < STATS) {
    var own = weights[thread];
    var at = thread;
    for (var left = scans(CHUNK / STATS) - 1u; left >= 1u; left--) {
      at += STATS;
      own += weights[at];
    }
    sums[thread] = own;
  }

  var o0 = vec4<f32>();
  var o1 = vec4<f32>();
  var o2 = vec4<f32>();
  var o3 = vec4<f32>();
  if (slice < SLICES) {
    var token = slice;
    for (var left = batches; left > 0u; left--) {
      let batch = values;
      if (left > 1u && (!WINDOWED || has_cached(chunk))) {
        values = load_values(chunk, lane, token + VALUES * SLICES);
      }
      for (var i = 0u; i < VALUES; i++) {
        let t = token + i * SLICES;
        let w = select(vec4<f32>(), weights[min(t, CHUNK - 1u)], t < chunk.count);
        let v = weighed_value(batch[i], t);
        o0 = fma(vec4<f32>(w.x), v, o0);
        if (HEAD_TILE > 1u) {
          o1 = fma(vec4<f32>(w.y), v, o1);
        }
        if (HEAD_TILE > 2u) {
          o2 = fma(vec4<f32>(w.z), v, o2);
          o3 = fma(vec4<f32>(w.w), v, o3);
        }
      }
      token += VALUES * SLICES;
    }
  }

  for (var pair = 0u; pair < HEAD_TILE / PAIR; pair++) {
    if (slice < SLICES) {
      slice_o[thread] = select(o2, o0, pair == 0u);
      if (HEAD_TILE > 1u) {
        slice_o[SLICES * HEAD_UNITS + thread] = select(o3, o1, pair == 0u);
      }
    }
    workgroupBarrier();
    // The first HEAD_UNITS threads sum the first head of the pair, the next ones the second.
    let head = pair * PAIR + slice;
    if (slice < PAIR && head < tile_size) {
      var total = vec4<f32>();
      var at = slice * SLICES * HEAD_UNITS + lane;
      for (var left = scans(SLICES); left >= 1u; left--) {
        total += slice_o[at];
        at += HEAD_UNITS;
      }
      partial_o[(partial + head * params.max_chunks) * HEAD_UNITS + lane] = total;
    }
    workgroupBarrier();
  }

  if (thread < tile_size) {
    var l = vec4<f32>();
    for (var left = scans(STATS); left >= 1u; left--) {
      l += sums[STATS - left];
    }
    if (SINKS) {
      l += sink_weights(sinks, m);
    }
    partial_ml[partial + thread * params.max_chunks] = vec2<f32>(m[thread], l[thread]);
  }
}
