// Tokens in order of probability, as sums over bins: what walk.wgsl searches.
//
// Order: larger logit first, then lower id. Weight of a token: exp((logit - best) / temperature) as an integer of 2^-31; a token
// whose weight rounds to 0 (22 nats below the best) takes no part. Integer sums have no order, so the number of threads changes
// no result.
//
// A level sorts the tokens that agree on all earlier digits into 1024 bins by one more digit; ascending digits are later tokens.

const THREADS: u32 = 256u; // variant
/// The tokens are those of `partials`, PAIRS of the slot's in each part; else all, by their logits.
const FROM_PARTIALS: bool = false; // variant
const PAIRS: u32 = 64u; // variant
const BINS: u32 = 1024u;
const LAST_LEVEL: u32 = 6u;
const CANDIDATES: u32 = 256u;
/// 1023 / 44 = 23.25 nats: beyond every token that takes part.
const BINS_PER_NAT: f32 = 44.0;
const WEIGHT_ONE: f32 = 2147483648.0;
const NOTHING: u32 = 0xffffffffu;
const GROUP: u32 = 16u;

/// Sums are (count, mass low word, mass high word).
fn sum_of(a: vec3<u32>, b: vec3<u32>) -> vec3<u32> {
  let low = a.y + b.y;
  return vec3<u32>(a.x + b.x, low, a.z + b.z + select(0u, 1u, low < b.y));
}

/// count, mass low, mass high of each bin; after `accumulate_bins`, of it and all bins before it.
var<workgroup> bins: array<atomic<u32>, 3u * BINS>;
/// Partial sums of `accumulate_bins` (3 words each), or candidates (key, id, weight).
var<workgroup> scratch: array<u32, 3u * (CANDIDATES + GROUP)>;
var<workgroup> num_candidates: atomic<u32>;
/// First and last bin, of the level in `bins`, whose tokens are listed as candidates; (1, 0): none.
var<workgroup> listed: vec2<u32>;
var<workgroup> digits: array<u32, LAST_LEVEL>;

struct Scan {
  slot: u32,
  thread: u32,
  best: f32,
  inverse_temperature: f32,
  penalty: f32,
}

fn digit(level: u32, nats: f32, key: u32, id: u32) -> u32 {
  let place = nats * BINS_PER_NAT;
  switch (level) {
    case 0u: { return u32(min(place, 1023.0)); }
    case 1u: { return u32(min((place - floor(place)) * 1024.0, 1023.0)); }
    case 2u: { return ~key >> 22u; }
    case 3u: { return (~key >> 12u) & 1023u; }
    case 4u: { return (~key >> 2u) & 1023u; }
    case 5u: { return ((~key & 3u) << 8u) | (id >> 10u); }
    default: { return id & 1023u; }
  }
}

/// Sorts the tokens that agree with `digits` into bins; or, given `from_bin` and `to_bin`, lists those in them as candidates.
fn visit(scan: Scan, level: u32, from_bin: u32, to_bin: u32) {
  var first = scan.thread * 4u;
  for (var fours = steps(first, params.items, THREADS * 4u); fours > 0u; fours--) {
    var four = vec4<u32>();
    var seen_bits = 0u;
    if (!FROM_PARTIALS) {
      four = logits[(scan.slot * params.stride + first) / 4u];
      if (scan.penalty != 1.0) {
        seen_bits = seen[scan.slot * params.seen_words + first / 32u] >> (first % 32u);
      }
    }
    let tokens_here = min(4u, params.items - first);
    for (var left = tokens_here; left > 0u; left--) {
      let c = tokens_here - left;
      var id = first + c;
      var key = 0u;
      if (FROM_PARTIALS) {
        let pair = partials[(id / PAIRS * params.slots + scan.slot) * PAIRS + id % PAIRS];
        key = pair.x;
        id = pair.y;
        if (id == NO_TOKEN) {
          continue;
        }
      } else {
        key = key_of(penalised(four[c], ((seen_bits >> c) & 1u) == 1u, scan.penalty));
      }
      let logit = logit_of(key);
      let nats = clamp((scan.best - logit) * scan.inverse_temperature, 0.0, 100.0);
      var agrees = true;
      for (var others = level; others > 0u; others--) {
        let earlier = others - 1u;
        agrees = agrees && digit(earlier, nats, key, id) == digits[earlier];
      }
      let own = digit(level, nats, key, id);
      if (!agrees || (from_bin != NOTHING && (own < from_bin || own > to_bin))) {
        continue;
      }
      let weight = u32(exp(-nats) * WEIGHT_ONE + 0.5);
      if (weight == 0u) {
        continue;
      }
      if (from_bin == NOTHING) {
        atomicAdd(&bins[own], 1u);
        if (atomicAdd(&bins[BINS + own], weight) > NOTHING - weight) {
          atomicAdd(&bins[2u * BINS + own], 1u);
        }
      } else {
        let place = atomicAdd(&num_candidates, 1u);
        if (place < CANDIDATES) {
          scratch[3u * place] = key;
          scratch[3u * place + 1u] = id;
          scratch[3u * place + 2u] = weight;
        }
      }
    }
    first += THREADS * 4u;
  }
}

fn bin_sum(bin: u32) -> vec3<u32> {
  return vec3<u32>(atomicLoad(&bins[bin]), atomicLoad(&bins[BINS + bin]), atomicLoad(&bins[2u * BINS + bin]));
}

fn set_bin_sum(bin: u32, sum: vec3<u32>) {
  atomicStore(&bins[bin], sum.x);
  atomicStore(&bins[BINS + bin], sum.y);
  atomicStore(&bins[2u * BINS + bin], sum.z);
}

fn scratch_sum(place: u32) -> vec3<u32> {
  return vec3<u32>(scratch[3u * place], scratch[3u * place + 1u], scratch[3u * place + 2u]);
}

fn set_scratch_sum(place: u32, sum: vec3<u32>) {
  scratch[3u * place] = sum.x;
  scratch[3u * place + 1u] = sum.y;
  scratch[3u * place + 2u] = sum.z;
}

/// Replaces each bin by the sum of it and all before it.
fn accumulate_bins(thread: u32) {
  let own = BINS / THREADS;
  let end = (thread + 1u) * own;
  var sum = vec3<u32>();
  for (var left = own * params.one; left > 0u; left--) {
    sum = sum_of(sum, bin_sum(end - left));
  }
  set_scratch_sum(thread, sum);
  workgroupBarrier();
  if (thread < THREADS / GROUP) {
    sum = vec3<u32>();
    for (var left = GROUP * params.one; left > 0u; left--) {
      sum = sum_of(sum, scratch_sum(thread * GROUP + left - 1u));
    }
    set_scratch_sum(THREADS + thread, sum);
  }
  workgroupBarrier();
  sum = vec3<u32>();
  for (var left = thread / GROUP; left > 0u; left--) {
    sum = sum_of(sum, scratch_sum(THREADS + left - 1u));
  }
  for (var left = thread % GROUP; left > 0u; left--) {
    sum = sum_of(sum, scratch_sum(thread - left));
  }
  for (var left = own * params.one; left > 0u; left--) {
    sum = sum_of(sum, bin_sum(end - left));
    set_bin_sum(end - left, sum);
  }
  workgroupBarrier();
}

/// Fills and accumulates the bins of a level.
fn sort_into_bins(scan: Scan, level: u32) {
  for (var left = 3u * BINS / THREADS * params.one; left > 0u; left--) {
    atomicStore(&bins[left * THREADS - 1u - scan.thread], 0u);
  }
  if (scan.thread == 0u) {
    listed = vec2<u32>(1u, 0u);
  }
  workgroupBarrier();
  visit(scan, level, NOTHING, NOTHING);
  workgroupBarrier();
  accumulate_bins(scan.thread);
}
