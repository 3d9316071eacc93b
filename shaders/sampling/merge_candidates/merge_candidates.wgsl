// The best COUNT pairs of what `candidates` found in a slice's tiles, for each active slot.
//
//   candidates[s] = the COUNT best (key, id) of found[s][0 .. tiles - 1], larger key first, among equals the lower id first
//
// found:      [slots][tiles][COUNT] (key, token id), two in an element; (0, NO_TOKEN) is no token; tiles * COUNT is at most TILE
// sampling:   [slots] SamplingParams
// candidates: [slots][COUNT] (key, token id); (0, NO_TOKEN) where there are fewer
//
// Grid: y = slot; one workgroup per slot. THREADS, COUNT, TILE: best_pairs.wgsl. Empty input: slots that aren't active are skipped.

@group(0) @binding(0) var<storage, read> found: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> sampling: array<SamplingParams>;
@group(0) @binding(2) var<storage, read_write> candidates: array<vec2<u32>>;

struct Params {
  tiles: u32,
}
@group(0) @binding(3) var<uniform> params: Params;

fn four_at(slot: u32, four: u32) -> Four {
  let place = slot * params.tiles * (COUNT / 2u) + 2u * four;
  let low = found[place];
  let high = found[place + 1u];
  return Four(vec4<u32>(low.xz, high.xz), vec4<u32>(low.yw, high.yw));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  if (sampling[slot].is_active == 0u) {
    return;
  }
  store_best(slot, params.tiles * (COUNT / 4u), slot * COUNT, thread);
}
