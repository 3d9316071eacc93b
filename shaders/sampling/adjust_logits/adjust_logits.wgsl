// What a request's controls make of its logits, before they are searched: for each slot and each token of [first, end)
//
//   counts += 1 where the step feeds the token
//   -1e30 where the token ends the text and fewer than min_tokens were generated, and where it isn't allowed; otherwise
//   l = logit + bias;  l = penalised(l);  l = l - frequency_penalty count - presence_penalty, where count > 0
//
// in vLLM's order. A slot whose controls are off keeps its logits, bit for bit.
//
// logits:   [slots][stride] f32 (as bits); NaN counts as -1e30, infinities as -1e30 and 1e30
// controls: [slots] SlotControls
// seen:     [2][slots][seen_words] u32, bit id % 32 of word id / 32: tokens that were seen, only read where the slot has a repetition
//           penalty; and behind those of all slots the tokens that are allowed, only read where not all are
// biases:   [slots][stride] f32, within -1e30 .. 1e30
// tokens:   [slots] u32, the token that the step feeds
// row_info: [slots] (position, slot); position 0xffffffff: no token is fed, as on ranks that aren't told of a first step
// counts:   [slots][stride] u32: how often the token was generated; the highest bit says that it ends the text
// adjusted: [slots][stride] f32 (as bits)
// At a slot's position begin + n, n tokens were generated, the one fed now among them.
//
// Grid: x = tile, y = slot; one workgroup per tile, four tokens per thread at a time, which no other thread touches.
// TILE: a multiple of 4, fixed in params.ts. THREADS: chosen by the plan from the adapter. Neither changes a result.
// Empty input: rows = 0 dispatches nothing; there is at least one token.

const THREADS: u32 = 256u; // variant
const TILE: u32 = 2048u; // variant
const ENDS_TEXT: u32 = 0x80000000u;
const SOME_ALLOWED: u32 = 2u;

@group(0) @binding(0) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> controls: array<SlotControls>;
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read> biases: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> tokens: array<u32>;
@group(0) @binding(5) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> counts: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> adjusted: array<vec4<u32>>;

struct Params {
  first: u32,
  end: u32,
  stride: u32,
  seen_words: u32,
  slots: u32,
}
@group(0) @binding(8) var<uniform> params: Params;

fn limited(logit: f32) -> f32 {
  return clamp(logit, -LARGEST_LOGIT, LARGEST_LOGIT);
}

fn controlled(bits: u32, bias: f32, is_seen: bool, count: u32, own: SlotControls) -> f32 {
  let biased = limited(finite_logit(bits) + bias);
  let logit = penalised(bitcast<u32>(biased), is_seen, own.repetition_penalty);
  if (count == 0u) {
    return logit;
  }
  return limited(logit - own.frequency_penalty * f32(count) - own.presence_penalty);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  let own = controls[slot];
  let token = tokens[slot];
  let position = row_info[slot].x;
  let feeds = position != NO_TOKEN && position != own.first;
  let generated = select(position, own.first, position == NO_TOKEN) - own.begin;
  let goes_on = generated < own.min_tokens;
  var first = params.first + group.x * TILE + thread * 4u;
  let end = min(params.first + (group.x + 1u) * TILE, params.end);
  for (var left = steps(first, end, 4u * THREADS); left > 0u; left--) {
    let place = slot * (params.stride / 4u) + first / 4u;
    var four = logits[place];
    if (own.is_on != 0u) {
      var counted = counts[place];
      if (feeds && token / 4u == first / 4u) {
        counted[token % 4u] += 1u;
        counts[place] = counted;
      }
      var seen_bits = 0u;
      if (own.repetition_penalty != 1.0) {
        seen_bits = seen[slot * params.seen_words + first / 32u] >> (first % 32u);
      }
      var allowed_bits = 0xfu;
      if (own.is_on == SOME_ALLOWED) {
        allowed_bits = seen[(params.slots + slot) * params.seen_words + first / 32u] >> (first % 32u);
      }
      let bias = biases[place];
      let tokens_here = min(4u, params.end - first);
      for (var more = tokens_here; more > 0u; more--) {
        let c = tokens_here - more;
        let count = counted[c];
        var logit = -LARGEST_LOGIT;
        if (((allowed_bits >> c) & 1u) == 1u && (!goes_on || (count & ENDS_TEXT) == 0u)) {
          logit = controlled(four[c], bias[c], ((seen_bits >> c) & 1u) == 1u, count & ~ENDS_TEXT, own);
        }
        four[c] = bitcast<u32>(logit);
      }
    }
    adjusted[place] = four;
    first += 4u * THREADS;
  }
}
