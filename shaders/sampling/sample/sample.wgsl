// The next token of each active slot.
//
//   temperature below 1e-5: the largest penalised logit, the lowest id among equals
//   else, of the tokens ordered by penalised logit, with p = softmax(logit / temperature):
//     the first top_k, of those the fewest whose p reach top_p of their sum, of those one drawn with probability ~ p,
//     by inverse CDF in that order, from word 0 of philox(counter = (tokens sampled, 0, 0, 0), key = seed)
//
// logits:       [slots][stride] f32 (as bits); NaN counts as -1e30, infinities as -1e30 and 1e30: a token is always drawn. Not
//               read with FROM_PARTIALS
// partials:     [parts][slots][pairs] (key, id), a part from each rank that holds logits; key 0 and NO_TOKEN is no token. From
//               argmax_partial; with FROM_PARTIALS from candidates: then a slot's top_k is at most CANDIDATES (params.ts), and tokens
//               that no part lists can't be drawn; with BINNED as binned_layout.wgsl has it: the logits are read where not all
//               tokens to list found place
// sampling:     [slots] SamplingParams; counter += 1
// seen:         [slots][seen_words] u32: the token's bit is set
// tokens:       [slots] u32, the token id; the next step's input
// row_info:     [slots] (position, slot); position += 1
// ids:          [ring][slots] u32: the token id at row (steps so far - 1) % ring; NO_TOKEN for a slot that isn't active
// step_counter: [1] u32, steps so far, this one counted
// A slot that isn't active, or whose position is 0xffffffff, keeps all its state.
//
// Grid: y = slot; one workgroup per slot. THREADS: 16 times a power of two, 32..256, chosen by the plan from the adapter; changes no result.
// DRAWS, FROM_PARTIALS, BINNED: chosen by the caller; DRAWS is false where no slot has a temperature.

@group(0) @binding(0) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> partials: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> sampling: array<SamplingParams>;
@group(0) @binding(3) var<storage, read_write> seen: array<u32>;
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(5) var<storage, read_write> row_info: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> ids: array<u32>;
@group(0) @binding(7) var<storage, read> step_counter: array<u32>;

struct Params {
  slots: u32,
  stride: u32,
  seen_words: u32,
  parts: u32,
  pairs: u32,
  /// Tokens that may be drawn: the vocabulary, or with FROM_PARTIALS the pairs of all parts.
  items: u32,
  ring: u32,
  /// 1. Loops that count down from so many times a constant aren't unrolled: otherwise software adapters take 10 s to compile this.
  one: u32,
}
@group(0) @binding(8) var<uniform> params: Params;

/// False: every slot is greedy, and the pipeline has no search in it (several times less to compile).
const DRAWS: bool = true; // variant
const LEAST_TEMPERATURE: f32 = 1.0e-5;

var<workgroup> settings: SamplingParams;
var<workgroup> best_token: vec2<u32>;

fn scratch_pair(place: u32) -> vec2<u32> {
  return vec2<u32>(scratch[2u * place], scratch[2u * place + 1u]);
}

fn set_scratch_pair(place: u32, pair: vec2<u32>) {
  scratch[2u * place] = pair.x;
  scratch[2u * place + 1u] = pair.y;
}

/// (key, id) of the slot's largest logit, to every thread.
fn best_of_partials(slot: u32, thread: u32) -> vec2<u32> {
  var best = vec2<u32>(0u, NO_TOKEN);
  for (var parts = params.parts; parts > 0u; parts--) {
    var pair = ((parts - 1u) * params.slots + slot) * params.pairs + thread;
    for (var left = steps(thread, params.pairs, THREADS); left > 0u; left--) {
      best = better(best, partials[pair]);
      pair += THREADS;
    }
  }
  set_scratch_pair(thread, best);
  workgroupBarrier();
  if (thread < 16u) {
    for (var n = 1u; n < THREADS / 16u; n++) {
      best = better(best, scratch_pair(thread + 16u * n));
    }
    set_scratch_pair(thread, best);
  }
  workgroupBarrier();
  if (thread == 0u) {
    for (var i = 1u; i < 16u; i++) {
      best = better(best, scratch_pair(i));
    }
    best_token = best;
  }
  let shared_best = workgroupUniformLoad(&best_token);
  return shared_best;
}

fn draw(slot: u32, thread: u32, chosen: SamplingParams, best: vec2<u32>) -> u32 {
  var scan = Scan(
    slot,
    thread,
    logit_of(best.x),
    1.0 / chosen.temperature,
    chosen.repetition_penalty,
    params.items,
    0u,
  );
  if (BINNED) {
    let listed_tokens = partials[bins_at(params.slots, params.pairs, slot) + BIN_PAIRS - 1u].x;
    if (listed_tokens <= LISTED) {
      scan.from_list = 1u;
      scan.items = listed_tokens;
    }
  }
  sort_into_bins(scan, 0u);
  if (thread == 0u) {
    reached = vec4<u32>(best.y, bin_sum(BINS - 1u));
  }
  let everything = workgroupUniformLoad(&reached);
  var mass = everything.zw;
  let random = random_of(chosen);
  var id = best.y;
  // 0: top-k, 1: top-p, 2: the draw. A walk that went past level 0 leaves other bins behind, so the next one sorts again.
  var sorted = true;
  for (var stages = 3u * params.one; stages > 0u; stages--) {
    let stage = 3u - stages;
    var goal = vec3<u32>();
    if (stage == 0u) {
      if (chosen.top_k == 0u || chosen.top_k >= everything.y) {
        continue;
      }
      goal.x = chosen.top_k;
    } else if (stage == 1u) {
      if (chosen.top_p >= 1.0) {
        continue;
      }
      goal = top_p_goal(mass, chosen.top_p);
    } else {
      goal = draw_goal(mass, random);
    }
    let end = walk(scan, goal, sorted);
    id = end.token.x;
    mass = end.token.zw;
    sorted = end.level == 0u;
  }
  return id;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  if (thread == 0u) {
    settings = sampling[slot];
    if (row_info[slot].x == NO_TOKEN) {
      settings.is_active = 0u;
    }
  }
  let chosen = workgroupUniformLoad(&settings);
  var id = NO_TOKEN;
  if (chosen.is_active != 0u) {
    let best = best_of_partials(slot, thread);
    id = best.y;
    if (DRAWS && chosen.temperature >= LEAST_TEMPERATURE) {
      id = draw(slot, thread, chosen, best);
    }
  }
  if (thread == 0u) {
    ids[(step_counter[0] - 1u) % params.ring * params.slots + slot] = id;
    if (id != NO_TOKEN) {
      tokens[slot] = id;
      row_info[slot].x += 1u;
      sampling[slot].counter += 1u;
      seen[slot * params.seen_words + id / 32u] |= 1u << (id % 32u);
    }
  }
}
