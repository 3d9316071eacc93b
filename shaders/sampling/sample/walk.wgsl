// Search in the tokens sorted by logit, without sorting them: the first token at which the running count (top-k), or the
// running mass (top-p, the draw), reaches a goal.
//
// It narrows down by the levels of visit.wgsl. Running sums over a level's bins say which bin holds the goal. At most CANDIDATES
// tokens in that bin are listed and compared one with another; more go to the next level. The last digits are the token's id, so
// this ends. The list takes in all earlier bins too where they fit: then top-k, top-p and the draw mostly need one list.

const BISECTIONS: u32 = 11u;

/// What `bin_of` gave.
var<workgroup> found: vec3<u32>;
/// Token id, and the sum up to and including it.
var<workgroup> reached: vec4<u32>;

/// By bisection of the running sums, `base` before the first bin: the bin that holds the goal (BINS: none does), the tokens in
/// it, and the tokens from the first bin to it.
fn bin_of(goal: vec3<u32>, base: vec3<u32>) -> vec3<u32> {
  var low = 0u;
  var high = BINS;
  // Halved so often, nothing is left of BINS + 1 places.
  for (var left = BISECTIONS * params.one; left > 0u; left--) {
    if (low >= high) {
      break;
    }
    let middle = (low + high) / 2u;
    if (meets(sum_of(base, bin_sum(middle)), goal)) {
      high = middle;
    } else {
      low = middle + 1u;
    }
  }
  let bin = min(low, BINS - 1u);
  let count = bin_sum(bin).x;
  var before = 0u;
  if (bin > 0u) {
    before = bin_sum(bin - 1u).x;
  }
  return vec3<u32>(low, count - before, count);
}

/// Compares the candidates, before which the sum is `base`, one with another.
fn settle(scan: Scan, goal: vec3<u32>, base: vec3<u32>) {
  let count = min(atomicLoad(&num_candidates), CANDIDATES);
  var own = scan.thread;
  for (var turns = steps(own, count, THREADS); turns > 0u; turns--) {
    let key = scratch[3u * own];
    let id = scratch[3u * own + 1u];
    var before = base;
    for (var left = count; left > 0u; left--) {
      let i = left - 1u;
      let other = scratch[3u * i];
      if (other > key || (other == key && scratch[3u * i + 1u] < id)) {
        before = sum_of(before, vec3<u32>(1u, scratch[3u * i + 2u], 0u));
      }
    }
    let sum = sum_of(before, vec3<u32>(1u, scratch[3u * own + 2u], 0u));
    if (meets(sum, goal) && !meets(before, goal)) {
      reached = vec4<u32>(id, sum);
    }
    own += THREADS;
  }
}

struct End {
  /// Token id, and the sum up to and including it.
  token: vec4<u32>,
  /// The level that the bins hold.
  level: u32,
}

/// The first token at which the running sum meets the goal. `sorted`: the bins hold level 0 already.
/// Where nothing meets the goal, the result is what `reached` held.
fn walk(scan: Scan, goal: vec3<u32>, sorted: bool) -> End {
  var base = vec3<u32>();
  var level = 0u;
  for (var left = (LAST_LEVEL + 1u) * params.one; left > 0u; left--) {
    if (level > 0u || !sorted) {
      sort_into_bins(scan, level);
    }
    if (scan.thread == 0u) {
      found = bin_of(goal, base);
    }
    let place = workgroupUniformLoad(&found);
    if (place.x >= BINS) {
      break;
    }
    if (place.y <= CANDIDATES || level == LAST_LEVEL) {
      let held = workgroupUniformLoad(&listed);
      var from_bin = held.x;
      if (place.x < held.x || place.x > held.y) {
        from_bin = select(place.x, 0u, place.z <= CANDIDATES);
        if (scan.thread == 0u) {
          atomicStore(&num_candidates, 0u);
        }
        workgroupBarrier();
        visit(scan, level, from_bin, place.x);
        workgroupBarrier();
        if (scan.thread == 0u) {
          listed = vec2<u32>(from_bin, place.x);
        }
      }
      if (from_bin > 0u) {
        base = sum_of(base, bin_sum(from_bin - 1u));
      }
      settle(scan, goal, base);
      break;
    }
    if (place.x > 0u) {
      base = sum_of(base, bin_sum(place.x - 1u));
    }
    workgroupBarrier();
    if (scan.thread == 0u) {
      digits[level] = place.x & 1023u;
    }
    workgroupBarrier();
    level++;
  }
  let token = workgroupUniformLoad(&reached);
  return End(token, level);
}
