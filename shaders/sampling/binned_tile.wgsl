// One workgroup looks at a tile of a slot's tokens, with what is known of all tiles: `visit_tile`. The kernel says what becomes of a
// token that has weight: take_token(slot, key, id, nats).
//
// TILE: a multiple of 4, fixed in params.ts. THREADS: chosen by the plan from the adapter. Neither changes a result.

const TILE: u32 = 4096u; // variant
const LEAST_TEMPERATURE: f32 = 1.0e-5;

@group(0) @binding(0) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> sampling: array<SamplingParams>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> partials: array<atomic<u32>>;

struct Params {
  vocab: u32,
  stride: u32,
  seen_words: u32,
  slots: u32,
  /// Best pairs of each slot.
  pairs: u32,
  /// 1. Loops that count down from so many times a constant aren't unrolled.
  one: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> best_key: atomic<u32>;

fn find_best(slot: u32, thread: u32) {
  var tile = thread;
  for (var left = steps(thread, params.pairs, THREADS); left > 0u; left--) {
    atomicMax(&best_key, atomicLoad(&partials[2u * (slot * params.pairs + tile)]));
    tile += THREADS;
  }
  workgroupBarrier();
}

/// After `find_best`.
fn visit_tile(slot: u32, tile: u32, thread: u32, chosen: SamplingParams) {
  let best = logit_of(atomicLoad(&best_key));
  let inverse_temperature = 1.0 / chosen.temperature;
  let penalty = chosen.repetition_penalty;
  var first = tile * TILE + thread * 4u;
  let end = min((tile + 1u) * TILE, params.vocab);
  for (var left = steps(first, end, 4u * THREADS); left > 0u; left--) {
    let four = logits[(slot * params.stride + first) / 4u];
    var seen_bits = 0u;
    if (penalty != 1.0) {
      seen_bits = seen[slot * params.seen_words + first / 32u] >> (first % 32u);
    }
    for (var c = 0u; c < 4u; c++) {
      let id = first + c;
      let key = key_of(penalised(four[c], ((seen_bits >> c) & 1u) == 1u, penalty));
      let nats = nats_below(best, logit_of(key), inverse_temperature);
      if (id < end && weight_at(nats) > 0u) {
        take_token(slot, key, id, nats);
      }
    }
    first += 4u * THREADS;
  }
}
