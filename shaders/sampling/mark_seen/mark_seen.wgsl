// The token that each row feeds counts as seen from now on: what `sample` does on the rank that samples, on a rank that is told.
//
//   bit tokens[s] of seen[s] = 1
//
// tokens:   [slots] u32, token ids
// row_info: [slots] (position, slot); a row whose position is 0xffffffff feeds nothing
// seen:     [slots][seen_words] u32, bit id % 32 of word id / 32
//
// Grid: x = 64 slots; one thread a slot, whose words no other touches. Empty input: rows = 0 dispatches nothing.

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(1) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> seen: array<u32>;

struct Params {
  slots: u32,
  seen_words: u32,
}
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let slot = id.x;
  if (slot >= params.slots) {
    return;
  }
  if (row_info[slot].x == 0xffffffffu) {
    return;
  }
  let token = tokens[slot];
  seen[slot * params.seen_words + token / 32u] |= 1u << (token % 32u);
}
