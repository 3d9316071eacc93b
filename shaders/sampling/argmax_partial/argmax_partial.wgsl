// The best logit of every tile of the tokens [first, end), for each active slot.
//
//   partials[s][t] = (key, id) of the largest penalised logit of tokens first + TILE t .. first + TILE (t + 1) - 1; the lowest id
//                    among equals
//   step_counter += 1
//
// logits:       [slots][stride] f32 (as bits); NaN counts as -1e30, infinities as -1e30 and 1e30
// sampling:     [slots] SamplingParams
// seen:         [slots][seen_words] u32, bit id % 32 of word id / 32; only read where the slot has a repetition penalty
// partials:     [slots][tiles] (key, token id); key orders as the logit does (logit.wgsl); (0, NO_TOKEN) for a tile beyond the end
//               behind them, the first CLEARED pairs of each slot's bins (binned_layout.wgsl) become 0
// step_counter: [1] u32; no other invocation of this dispatch touches it, and `sample` runs after it
//
// Grid: x = tile, y = slot; one workgroup per tile.
// TILE: a multiple of 4, fixed in params.ts. THREADS: a multiple of 16, 16..256, chosen by the plan from the adapter.
// UNROLLED: whether a compiler may unroll the loop over a tile. None changes a result. Empty input: slots that aren't active are skipped; there is at least one token.

const THREADS: u32 = 256u; // variant
const TILE: u32 = 2048u; // variant
const CLEARED: u32 = 0u; // variant
const UNROLLED: bool = true; // variant

@group(0) @binding(0) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> sampling: array<SamplingParams>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> partials: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> step_counter: array<u32>;

struct Params {
  first: u32,
  end: u32,
  stride: u32,
  seen_words: u32,
  tiles: u32,
  /// Where the pairs to clear begin.
  cleared_first: u32,
}
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> bests: array<vec2<u32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  if (slot == 0u && group.x == 0u && thread == 0u) {
    step_counter[0] += 1u;
  }
  if (sampling[slot].is_active == 0u) {
    return;
  }
  if (CLEARED > 0u) {
    var pair = group.x * THREADS + thread;
    for (var left = steps(pair, CLEARED, params.tiles * THREADS); left > 0u; left--) {
      partials[params.cleared_first + slot * CLEARED + pair] = vec2<u32>();
      pair += params.tiles * THREADS;
    }
  }
  let penalty = sampling[slot].repetition_penalty;
  var best = vec2<u32>(0u, NO_TOKEN);
  var first = params.first + group.x * TILE + thread * 4u;
  let end = min(params.first + (group.x + 1u) * TILE, params.end);
  for (var left = select(steps(first, end, 4u * THREADS), TILE / (4u * THREADS), UNROLLED); left >= 1u; left--) {
    let at = min(first, params.end - 1u);
    let four = logits[slot * (params.stride / 4u) + at / 4u];
    var seen_bits = 0u;
    if (penalty != 1.0) {
      seen_bits = seen[slot * params.seen_words + at / 32u] >> (first % 32u);
    }
    for (var c = 0u; c < 4u; c++) {
      let logit = penalised(four[c], ((seen_bits >> c) & 1u) == 1u, penalty);
      best = select(best, better(best, vec2<u32>(key_of(logit), first + c)), first + c < end);
    }
    first += 4u * THREADS;
  }
  bests[thread] = best;
  workgroupBarrier();
  if (thread < 16u) {
    for (var n = 1u; n < THREADS / 16u; n++) {
      best = better(best, bests[thread + 16u * n]);
    }
    bests[thread] = best;
  }
  workgroupBarrier();
  if (thread == 0u) {
    for (var i = 1u; i < 16u; i++) {
      best = better(best, bests[i]);
    }
    partials[slot * params.tiles + group.x] = best;
  }
}
