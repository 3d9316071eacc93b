// Lists the tokens among which top-k, top-p and the draw of `sample` end, for each active slot that has a temperature: those of the bins
// where, by the running sums over all bins, a goal may be reached; and those of the first bins, while they are few.
//
// A bin is as near as the goals are known before its tokens are sorted: top-k's bin is certain; what it leaves of the mass lies between
// two sums, so top-p's goal and then the draw's lie between two, and the bins of both and all between them are listed.
//
// logits, sampling, seen: as in bin_weights
// partials: binned_layout.wgsl: best pairs and bins are read; tokens to list are counted and listed while there is place
//
// Grid: x = tile, y = slot; one workgroup per tile. THREADS, TILE: binned_tile.wgsl. Empty input: as bin_weights.

/// First bins where top-k, top-p and the draw may end, then last ones; 1 and 0 for one that doesn't apply. One thread writes each.
var<workgroup> ends: array<atomic<u32>, 6>;
/// Bins whose tokens, with all before them, are at most CANDIDATES.
var<workgroup> first_bins: atomic<u32>;

fn is_listed(bin: u32) -> bool {
  var found = bin < atomicLoad(&first_bins);
  for (var stage = 0u; stage < 3u; stage++) {
    found = found || (bin >= atomicLoad(&ends[stage]) && bin <= atomicLoad(&ends[3u + stage]));
  }
  return found;
}

fn take_token(slot: u32, key: u32, id: u32, nats: f32) {
  if (!is_listed(bin_at(nats))) {
    return;
  }
  let place = atomicAdd(&partials[2u * (bins_at(params.slots, params.pairs, slot) + BIN_PAIRS - 1u)], 1u);
  if (place < LISTED) {
    let pair = 2u * (list_at(params.slots, params.pairs, slot) + place);
    atomicStore(&partials[pair], key);
    atomicStore(&partials[pair + 1u], id);
  }
}

/// Whether the running sums reach the goal in a bin: its sum, and that before it.
fn ends_in(sum: vec3<u32>, before: vec3<u32>, goal: vec3<u32>) -> bool {
  return meets(sum, goal) && !meets(before, goal);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let slot = group.y;
  let chosen = sampling[slot];
  if (chosen.is_active == 0u || chosen.temperature < LEAST_TEMPERATURE) {
    return;
  }
  if (thread < 6u) {
    atomicStore(&ends[thread], select(0u, 1u, thread < 3u));
  }
  if (thread == 0u) {
    atomicStore(&first_bins, BINS);
  }
  let first = 2u * bins_at(params.slots, params.pairs, slot);
  var word = thread;
  for (var left = 3u * BINS / THREADS; left >= 1u; left--) {
    atomicStore(&bins[word], atomicLoad(&partials[first + word]));
    word += THREADS;
  }
  find_best(slot, thread);
  accumulate_bins(thread);
  let everything = bin_sum(BINS - 1u);
  // The mass that the stages so far leave is at least `least` and at most `most`.
  var least = everything.yz;
  var most = everything.yz;
  let random = random_of(chosen);
  // 0: top-k, and how many of the first bins are few; 1: top-p, 2: the draw.
  for (var stage = 0u; stage < 3u; stage++) {
    var low = vec3<u32>(chosen.top_k, 0u, 0u);
    var high = low;
    var applies = chosen.top_k != 0u && chosen.top_k < everything.x;
    if (stage == 1u) {
      low = top_p_goal(least, chosen.top_p);
      high = top_p_goal(most, chosen.top_p);
      applies = chosen.top_p < 1.0;
    } else if (stage == 2u) {
      low = draw_goal(least, random);
      high = draw_goal(most, random);
      applies = true;
    }
    var bin = thread;
    for (var left = BINS / THREADS; left >= 1u; left--) {
      let sum = bin_sum(bin);
      let before = bin_sum(max(bin, 1u) - 1u) * select(0u, 1u, bin > 0u);
      if (applies && ends_in(sum, before, low)) {
        atomicStore(&ends[stage], bin);
      }
      if (applies && ends_in(sum, before, high)) {
        atomicStore(&ends[3u + stage], bin);
      }
      if (stage == 0u && ends_in(sum, before, vec3<u32>(CANDIDATES + 1u, 0u, 0u))) {
        atomicStore(&first_bins, bin);
      }
      bin += THREADS;
    }
    workgroupBarrier();
    if (applies && stage == 0u) {
      least = vec2<u32>(1u, 0u);
      let end = atomicLoad(&ends[0]);
      if (end > 0u) {
        least = add_to_mass(bin_sum(end - 1u).yz, 1u);
      }
    } else if (applies) {
      least = low.yz;
    }
    if (applies) {
      most = bin_sum(atomicLoad(&ends[3u + stage])).yz;
    }
  }
  visit_tile(slot, group.x, thread, chosen);
}
