// The best COUNT logits of every tile of the tokens [first, end), for each active slot.
//
//   candidates[s][t] = (key, id) of the COUNT largest penalised logits of tokens first + TILE t .. first + TILE (t + 1) - 1, larger
//                      first, among equals the lower id first
//   step_counter += 1
//
// logits:       [slots][stride] f32 (as bits); NaN counts as -1e30, infinities as -1e30 and 1e30
// sampling:     [slots] SamplingParams
// seen:         [slots][seen_words] u32, bit id % 32 of word id / 32; only read where the slot has a repetition penalty
// candidates:   [slots][tiles][COUNT] (key, token id); key orders as the logit does (logit.wgsl); (0, NO_TOKEN) where a tile has
//               fewer tokens
// step_counter: [1] u32; no other invocation of this dispatch touches it, and `sample` runs after it
//
// Grid: x = tile, y = slot; one workgroup per tile. THREADS, COUNT, TILE: best_pairs.wgsl. Neither THREADS nor TILE changes what
// merge_candidates makes of it. Empty input: slots that aren't active are skipped; there is at least one token.

@group(0) @binding(0) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> sampling: array<SamplingParams>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read_write> candidates: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> step_counter: array<u32>;

struct Params {
  first: u32,
  end: u32,
  stride: u32,
  seen_words: u32,
  tiles: u32,
}
@group(0) @binding(5) var<uniform> params: Params;

/// Of the slice: the tokens of the tile follow those of the tiles before.
var<private> tile_first: u32;

fn four_at(slot: u32, four: u32) -> Four {
  let first = tile_first + 4u * four;
  let bits = logits[(slot * params.stride + first) / 4u];
  let penalty = sampling[slot].repetition_penalty;
  var seen_bits = 0u;
  if (penalty != 1.0) {
    seen_bits = seen[slot * params.seen_words + first / 32u] >> (first % 32u);
  }
  var keys = vec4<u32>();
  var ids = vec4<u32>(NO_TOKEN);
  for (var c = 0u; c < 4u; c++) {
    if (first + c < params.end) {
      keys[c] = key_of(penalised(bits[c], ((seen_bits >> c) & 1u) == 1u, penalty));
      ids[c] = first + c;
    }
  }
  return Four(keys, ids);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  if (slot == 0u && group.x == 0u && thread == 0u) {
    step_counter[0] += 1u;
  }
  if (sampling[slot].is_active == 0u) {
    return;
  }
  tile_first = params.first + TILE * group.x;
  let tokens = min(TILE, params.end - tile_first);
  store_best(slot, (tokens + 3u) / 4u, (slot * params.tiles + group.x) * COUNT, thread);
}
