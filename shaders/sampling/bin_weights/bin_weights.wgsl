// Adds the weights of every tile of a vocabulary to the vocabulary's bins, for each active slot that has a temperature.
//
//   bins[s][b] += (tokens of the tile in bin b, the sum of their weights)
//
// logits:   [slots][stride] f32 (as bits); NaN counts as -1e30, infinities as -1e30 and 1e30
// sampling: [slots] SamplingParams
// seen:     [slots][seen_words] u32, bit id % 32 of word id / 32; only read where the slot has a repetition penalty
// partials: binned_layout.wgsl: the best pairs are read, the bins, which argmax_partial made 0, are added to
//
// Grid: x = tile, y = slot; one workgroup per tile. THREADS, TILE: binned_tile.wgsl. Empty input: slots that aren't active, or greedy,
// are skipped; there is at least one token.

fn take_token(slot: u32, key: u32, id: u32, nats: f32) {
  add_to_bin(bin_at(nats), weight_at(nats));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  let chosen = sampling[slot];
  if (chosen.is_active == 0u || chosen.temperature < LEAST_TEMPERATURE) {
    return;
  }
  find_best(slot, thread);
  visit_tile(slot, group.x, thread, chosen);
  workgroupBarrier();
  let first = 2u * bins_at(params.slots, params.pairs, slot);
  var bin = thread;
  for (var left = BINS / THREADS; left >= 1u; left--) {
    let sum = bin_sum(bin);
    if (sum.x > 0u) {
      atomicAdd(&partials[first + bin], sum.x);
      var high = sum.z;
      if (atomicAdd(&partials[first + BINS + bin], sum.y) > NOTHING - sum.y) {
        high += 1u;
      }
      if (high > 0u) {
        atomicAdd(&partials[first + 2u * BINS + bin], high);
      }
    }
    bin += THREADS;
  }
}
