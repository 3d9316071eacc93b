// The best COUNT of up to TILE (key, token id), best first, by one workgroup: `store_best`.
//
// The kernel gives four_at(slot, four): pairs 4 four .. 4 four + 3 of what the workgroup looks at; (0, NO_TOKEN) where there is
// none. Its binding `candidates` takes the result.
//
// Fours are dealt to GROUPS groups. The COUNT-th best of the groups' best pairs is a floor: COUNT pairs are at least as good, so
// nothing worse is among the best COUNT; and only COUNT groups have a pair as good, so that at most LISTED pairs are listed and
// compared one with another. Pairs are all different, by their ids: this is exact however many logits tie.
//
// THREADS, and AHEAD, pairs that a thread compares with at a time, a divisor of GROUPS and LISTED: chosen by the plan from the adapter.
// COUNT, TILE: fixed in params.ts; COUNT <= GROUPS.

const THREADS: u32 = 256u; // variant
const COUNT: u32 = 64u; // variant
const TILE: u32 = 4096u; // variant
const AHEAD: u32 = 16u; // variant
const GROUPS: u32 = 256u;
const LISTED: u32 = COUNT * TILE / GROUPS;

struct Four {
  keys: vec4<u32>,
  ids: vec4<u32>,
}

var<workgroup> group_best: array<vec2<u32>, GROUPS>;
var<workgroup> least: vec2<u32>;
var<workgroup> listed: array<vec2<u32>, LISTED>;
var<workgroup> num_listed: atomic<u32>;

/// Writes candidates[out .. out + COUNT - 1], (0, NO_TOKEN) where there are fewer pairs. `fours`: at most TILE / 4.
fn store_best(slot: u32, fours: u32, out: u32, thread: u32) {
  let nothing = vec2<u32>(0u, NO_TOKEN);
  let groups = min(GROUPS, fours);
  if (thread == 0u) {
    atomicStore(&num_listed, 0u);
    least = nothing;
  }
  // Groups up to a multiple of AHEAD; beyond `groups` they are empty.
  let turns_of_groups = steps(0u, groups, AHEAD);
  var group = thread;
  for (var own = steps(thread, turns_of_groups * AHEAD, THREADS); own > 0u; own--) {
    var best = nothing;
    var four = group;
    for (var left = steps(group, fours, GROUPS); left > 0u; left--) {
      let pairs = four_at(slot, four);
      for (var c = 0u; c < 4u; c++) {
        best = better(best, vec2<u32>(pairs.keys[c], pairs.ids[c]));
      }
      four += GROUPS;
    }
    group_best[group] = best;
    group += THREADS;
  }
  workgroupBarrier();
  group = thread;
  for (var turns = steps(thread, groups, THREADS); turns > 0u; turns--) {
    let own = group_best[group];
    var before = 0u;
    var at = 0u;
    for (var left = turns_of_groups; left > 0u; left--) {
      for (var i = 0u; i < AHEAD; i++) {
        let pair = group_best[at + i];
        before += select(0u, 1u, pair.x > own.x || (pair.x == own.x && pair.y < own.y));
      }
      at += AHEAD;
    }
    if (before == COUNT - 1u && own.y != NO_TOKEN) {
      least = own;
    }
    group += THREADS;
  }
  let floor_pair = workgroupUniformLoad(&least);
  group = thread;
  for (var turns = steps(thread, groups, THREADS); turns > 0u; turns--) {
    var four = group;
    let wanted = !is_better(floor_pair, group_best[group]);
    for (var left = select(0u, steps(group, fours, GROUPS), wanted); left > 0u; left--) {
      let pairs = four_at(slot, four);
      for (var c = 0u; c < 4u; c++) {
        let pair = vec2<u32>(pairs.keys[c], pairs.ids[c]);
        if (pair.y != NO_TOKEN && !is_better(floor_pair, pair)) {
          let place = atomicAdd(&num_listed, 1u);
          listed[place] = pair;
        }
      }
      four += GROUPS;
    }
    group += THREADS;
  }
  workgroupBarrier();
  let count = atomicLoad(&num_listed);
  var place = thread;
  for (var turns = steps(thread, count, THREADS); turns > 0u; turns--) {
    let own = listed[place];
    var before = 0u;
    var at = 0u;
    for (var left = steps(0u, count, AHEAD); left > 0u; left--) {
      for (var i = 0u; i < AHEAD; i++) {
        let other = at + i;
        let pair = listed[other];
        // No two pairs are equal. Places matter to wgsl_reflect's interpreter alone, whose lanes get each other's results of calls.
        let above = pair.x > own.x || (pair.x == own.x && (pair.y < own.y || (pair.y == own.y && other < place)));
        before += select(0u, 1u, other < count && above);
      }
      at += AHEAD;
    }
    if (before < COUNT) {
      candidates[out + before] = own;
    }
    place += THREADS;
  }
  place = count + thread;
  for (var left = steps(place, COUNT, THREADS); left > 0u; left--) {
    candidates[out + place] = nothing;
    place += THREADS;
  }
}
