// The one row of a workgroup is attention's output, whose chunks are merged in workgroup memory; the counterpart of x_plain.wgsl.
// Joined after lib/softmax_state.wgsl. The bits are attention_merge's: of up to 8 chunks each is a merge lane of its own, so they
// are merged in order.
//
// The kernel declares partial_o: array<vec4<f32>> [heads][params.partials][HEAD_UNITS], partial_ml: array<vec2<f32>>, row_info:
// array<vec2<u32>> of the one row, and fn first_head() -> u32, the head that the row begins with, and fn staged_at(k4) -> u32.

const HEAD_UNITS: u32 = 16u; // variant
/// vec4s of a row that are read, and of these that are attention's; the others are 0.
const STAGED: u32 = 8u; // variant
const MERGED: u32 = 8u; // variant
/// Chunks that a row may have here.
const MOST_CHUNKS: u32 = 4u; // variant
const CHUNK: u32 = 256u;

var<workgroup> staged: array<vec4<f32>, STAGED>;

fn chunk_state(at: u32, unit: u32) -> SoftmaxState {
  let ml = partial_ml[at];
  return SoftmaxState(partial_o[at * HEAD_UNITS + unit], ml.x, ml.y);
}

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {
  let chunks = min(min(row_info[0].x / CHUNK + 1u, params.partials), MOST_CHUNKS);
  var k4 = thread;
  for (var left = steps(thread, STAGED, THREADS); left > 0u; left--) {
    var value = vec4<f32>();
    if (k4 < MERGED) {
      let first = (first_head() + k4 / HEAD_UNITS) * params.partials;
      var state = softmax_empty();
      for (var chunk = 0u; chunk < MOST_CHUNKS; chunk++) {
        if (chunk < chunks) {
          state = softmax_merge(state, chunk_state(first + chunk, k4 % HEAD_UNITS));
        }
      }
      value = softmax_finish(state);
    }
    staged[k4] = value;
    k4 += THREADS;
  }
  workgroupBarrier();
}

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return staged[min(staged_at(k4), STAGED - 1u)];
}
