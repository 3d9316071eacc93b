// Tokens in order of probability, as sums over bins: what walk.wgsl searches.
//
// Order: larger logit first, then lower id. A level sorts the tokens that agree on all earlier digits into 1024 bins by one more digit
// (weights.wgsl has the first one); ascending digits are later tokens.

/// The tokens are those of `partials`, PAIRS of the slot's in each part; otherwise all, by their logits.
const FROM_PARTIALS: bool = false; // variant
/// The first level's bins are summed up, and the tokens that a walk may ask for are listed where they find place (binned_layout.wgsl).
const BINNED: bool = false; // variant
const PAIRS: u32 = 64u; // variant
const LAST_LEVEL: u32 = 6u;

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
  /// Tokens to visit: of the vocabulary, of the list, or pairs of all parts.
  items: u32,
  /// 1: they are those of the list.
  from_list: u32,
}

fn digit(level: u32, nats: f32, key: u32, id: u32) -> u32 {
  let place = nats * BINS_PER_NAT;
  switch (level) {
    case 0u: { return bin_at(nats); }
    case 1u: { return u32(min((place - floor(place)) * 1024.0, 1023.0)); }
    case 2u: { return ~key >> 22u; }
    case 3u: { return (~key >> 12u) & 1023u; }
    case 4u: { return (~key >> 2u) & 1023u; }
    case 5u: { return ((~key & 3u) << 8u) | (id >> 10u); }
    default: { return id & 1023u; }
  }
}

/// Sorts a token that agrees with `digits` into its bin; or, given `from_bin` and `to_bin`, lists it as a candidate if it is in them.
fn take(scan: Scan, level: u32, from_bin: u32, to_bin: u32, key: u32, id: u32) {
  let nats = nats_below(scan.best, logit_of(key), scan.inverse_temperature);
  var agrees = true;
  for (var others = level; others > 0u; others--) {
    let earlier = others - 1u;
    agrees = agrees && digit(earlier, nats, key, id) == digits[earlier];
  }
  let own = digit(level, nats, key, id);
  if (!agrees || (from_bin != NOTHING && (own < from_bin || own > to_bin))) {
    return;
  }
  let weight = weight_at(nats);
  if (weight == 0u) {
    return;
  }
  if (from_bin == NOTHING) {
    add_to_bin(own, weight);
    return;
  }
  let place = atomicAdd(&num_candidates, 1u);
  if (place < CANDIDATES) {
    scratch[3u * place] = key;
    scratch[3u * place + 1u] = id;
    scratch[3u * place + 2u] = weight;
  }
}

/// `take` of the tokens of `partials`.
fn visit_pairs(scan: Scan, level: u32, from_bin: u32, to_bin: u32) {
  var item = scan.thread;
  for (var left = steps(item, scan.items, THREADS); left > 0u; left--) {
    var place = (item / PAIRS * params.slots + scan.slot) * PAIRS + item % PAIRS;
    if (BINNED) {
      place = list_at(params.slots, params.pairs, scan.slot) + item;
    }
    let pair = partials[place];
    if (pair.y != NO_TOKEN) {
      take(scan, level, from_bin, to_bin, pair.x, pair.y);
    }
    item += THREADS;
  }
}

/// `take` of all tokens that there are.
fn visit(scan: Scan, level: u32, from_bin: u32, to_bin: u32) {
  if (FROM_PARTIALS || (BINNED && scan.from_list != 0u)) {
    visit_pairs(scan, level, from_bin, to_bin);
    return;
  }
  var first = scan.thread * 4u;
  for (var fours = steps(first, scan.items, THREADS * 4u); fours > 0u; fours--) {
    let four = logits[(scan.slot * params.stride + first) / 4u];
    var seen_bits = 0u;
    if (scan.penalty != 1.0) {
      seen_bits = seen[scan.slot * params.seen_words + first / 32u] >> (first % 32u);
    }
    let tokens_here = min(4u, scan.items - first);
    for (var left = tokens_here; left > 0u; left--) {
      let c = tokens_here - left;
      let key = key_of(penalised(four[c], ((seen_bits >> c) & 1u) == 1u, scan.penalty));
      take(scan, level, from_bin, to_bin, key, first + c);
    }
    first += THREADS * 4u;
  }
}

/// Fills and accumulates the bins of a level.
fn sort_into_bins(scan: Scan, level: u32) {
  let is_summed = BINNED && level == 0u;
  let sums = bins_at(params.slots, params.pairs, scan.slot);
  for (var left = 3u * BINS / THREADS * params.one; left > 0u; left--) {
    let word = left * THREADS - 1u - scan.thread;
    var before = 0u;
    if (is_summed) {
      before = partials[sums + word / 2u][word % 2u];
    }
    atomicStore(&bins[word], before);
  }
  if (scan.thread == 0u) {
    listed = vec2<u32>(1u, 0u);
  }
  workgroupBarrier();
  if (!is_summed) {
    visit(scan, level, NOTHING, NOTHING);
  }
  workgroupBarrier();
  accumulate_bins(scan.thread);
}
