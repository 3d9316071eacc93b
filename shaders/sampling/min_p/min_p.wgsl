// Drops tokens that are far less likely than the best one: for each active slot and each token
//
//   adjusted = -1e30 where (best - adjusted) / temperature > reach
//
// that is where its probability, after temperature, is below min_p times the largest, with reach = -ln(min_p).
//
// partials: [slots][tiles] (key, token id) of `adjusted`, from argmax_partial
// sampling: [slots] SamplingParams
// controls: [slots] SlotControls
// adjusted: [slots][stride] f32 (as bits); NaN counts as -1e30, infinities as -1e30 and 1e30
//
// Grid: x = tile, y = slot; one workgroup per tile. TILE: a multiple of 4, fixed in params.ts. THREADS: chosen by the plan from the
// adapter. Neither changes a result. Slots that are greedy, not active or without a min_p are skipped.

const THREADS: u32 = 256u; // variant
const TILE: u32 = 2048u; // variant
const LEAST_TEMPERATURE: f32 = 1.0e-5;

@group(0) @binding(0) var<storage, read> partials: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> sampling: array<SamplingParams>;
@group(0) @binding(2) var<storage, read> controls: array<SlotControls>;
@group(0) @binding(3) var<storage, read_write> adjusted: array<vec4<u32>>;

struct Params {
  vocab: u32,
  stride: u32,
  tiles: u32,
}
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  let reach = controls[slot].reach;
  let temperature = sampling[slot].temperature;
  if (controls[slot].is_on == 0u || reach > 1.0e30 || sampling[slot].is_active == 0u || temperature < LEAST_TEMPERATURE) {
    return;
  }
  var best = vec2<u32>(0u, NO_TOKEN);
  for (var left = params.tiles; left > 0u; left--) {
    best = better(best, partials[slot * params.tiles + left - 1u]);
  }
  let largest = logit_of(best.x);
  let inverse_temperature = 1.0 / temperature;
  var first = group.x * TILE + thread * 4u;
  for (var left = steps(first, min((group.x + 1u) * TILE, params.vocab), 4u * THREADS); left > 0u; left--) {
    let place = slot * (params.stride / 4u) + first / 4u;
    var four = adjusted[place];
    for (var c = 0u; c < 4u; c++) {
      if ((largest - finite_logit(four[c])) * inverse_temperature > reach) {
        four[c] = bitcast<u32>(-LARGEST_LOGIT);
      }
    }
    adjusted[place] = four;
    first += 4u * THREADS;
  }
}
