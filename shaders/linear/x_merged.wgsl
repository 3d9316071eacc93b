// The one row of a workgroup is attention's output, whose chunks are merged in workgroup memory; the counterpart of x_plain.wgsl.
// Joined after lib/softmax_state.wgsl. The bits are attention_merge's: of up to 8 chunks each is a merge lane of its own, so they
// are merged in the tree of their lanes. All chunks of an element are asked for at once.
//
// The kernel declares partial_o: array<vec4<f32>> [heads][params.partials][HEAD_UNITS], partial_ml: array<vec2<f32>>, row_info:
// array<vec2<u32>> of the one row, fn first_head() -> u32, the head that the row begins with, fn staged_at(k4) -> u32, and
// fn opening(k4) -> vec4<f32>, what merged elements are multiplied by.

const HEAD_UNITS: u32 = 16u; // variant
/// vec4s of a row that are read, and of these that are attention's; the others are 0.
const STAGED: u32 = 8u; // variant
const MERGED: u32 = 8u; // variant
/// Chunks that a row may have here.
const MOST_CHUNKS: u32 = 4u; // variant
/// Entries up to its own that a row sees (window.wgsl). 0: all.
const WINDOW: u32 = 0u; // variant
const CHUNK: u32 = 256u;
/// The tree of so many neighbouring lanes is that of all 8: a power of two.
const TREE_LANES: u32 = 1u << (32u - countLeadingZeros(MOST_CHUNKS - 1u));

var<workgroup> staged: array<vec4<f32>, STAGED>;

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  let last = row_info[0].x;
  var first = 0u;
  if (WINDOW > 0u) {
    first = (last + 1u - min(WINDOW, last + 1u)) / CHUNK;
  }
  let count = min(min(last / CHUNK + 1u, params.partials) - first, MOST_CHUNKS);
  const trips = (STAGED + THREADS - 1u) / THREADS;
  for (var trip = 0u; trip < trips; trip++) {
    let k4 = trip * THREADS + thread;
    let used = min(k4, MERGED - 1u);
    let base = (first_head() + used / HEAD_UNITS) * params.partials;
    let factors = opening(used);
    var states = array<SoftmaxState, TREE_LANES>();
    for (var lane = 0u; lane < TREE_LANES; lane++) {
      // The chunk of this lane; those that the row doesn't have are empty.
      let behind = (lane - first) % TREE_LANES;
      let at = base + first + select(0u, behind, behind < count);
      let ml = partial_ml[at];
      let o = partial_o[at * HEAD_UNITS + used % HEAD_UNITS];
      states[lane] = SoftmaxState(o, ml.x, select(0.0, ml.y, behind < count));
    }
    for (var level = countTrailingZeros(TREE_LANES); level >= 1u; level--) {
      let half = 1u << (level - 1u);
      for (var left = half; left >= 1u; left--) {
        states[half - left] = softmax_merge(states[half - left], states[2u * half - left]);
      }
    }
    if (k4 < STAGED) {
      staged[k4] = select(vec4<f32>(), softmax_finish(states[0]) * factors, k4 < MERGED);
    }
  }
  workgroupBarrier();
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[min(staged_at(k4), STAGED - 1u)];
}
