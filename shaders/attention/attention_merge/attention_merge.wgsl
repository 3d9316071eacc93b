// Merges the attention partials of each (row, head) into its output.
//
//   lane j = partials j, j + 8, j + 16, ... < n merged in ascending order;  state = lanes 0..7 merged in order
//   out = o / l,  n = min(partials, floor(position / 256) + 1)
//
// partial_o   [rows][heads][partials][HEAD_UNITS*4] f32, unnormalised
// partial_ml  [rows][heads][partials] (m, l) f32, natural log, scale applied
// row_info    [rows] (position, slot)
// out         [rows][out_units*4] f32; head h at h * HEAD_UNITS*4
//
// Grid (heads, ceil(HEAD_UNITS / UNITS), rows): a workgroup = UNITS units (4 dims each) of one (row, head),
// PARALLEL threads each: 8 for GPUs (a thread a merge lane), 1 for software adapters (no barrier). UNITS <= 32.
// Inactive rows: nothing is written. A row without keys can't exist; a state with l = 0 gives 0.
const HEAD_UNITS: u32 = 16; // variant
const UNITS: u32 = 16; // variant
const PARALLEL: u32 = 8; // variant
const THREADS: u32 = UNITS * PARALLEL;
const MERGE_LANES: u32 = 8u;
const CHUNK: u32 = 256u;
const INACTIVE: u32 = 0xffffffffu;

struct Params {
  heads: u32,
  partials: u32,
  out_units: u32,
}

@group(0) @binding(0) var<storage, read> partial_o: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> lane_o: array<vec4<f32>, THREADS>;
var<workgroup> lane_ml: array<vec2<f32>, PARALLEL>;

fn merge_lane(base: u32, lane: u32, count: u32, unit: u32) -> SoftmaxState {
  var state = softmax_empty();
  for (var i = lane; i < count; i += MERGE_LANES) {
    let ml = partial_ml[base + i];
    state = softmax_merge(state, SoftmaxState(partial_o[(base + i) * HEAD_UNITS + unit], ml.x, ml.y));
  }
  return state;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group_id.x;
  let row = group_id.z;
  let position = row_info[row].x;
  if (position == INACTIVE) {
    return;
  }
  let count = min(params.partials, position / CHUNK + 1u);
  let base = (row * params.heads + head) * params.partials;
  let unit = group_id.y * UNITS + thread % UNITS;
  // The last workgroup of a head may have threads beyond it; they compute its last unit and write nothing.
  let loaded_unit = min(unit, HEAD_UNITS - 1u);

  var state = softmax_empty();
  if (PARALLEL == 1u) {
    for (var lane = 0u; lane < min(count, MERGE_LANES); lane++) {
      state = softmax_merge(state, merge_lane(base, lane, count, loaded_unit));
    }
  } else {
    let lane = thread / UNITS;
    let own = merge_lane(base, lane, count, loaded_unit);
    lane_o[thread] = own.o;
    if (thread % UNITS == 0u) {
      lane_ml[lane] = vec2<f32>(own.m, own.l);
    }
    workgroupBarrier();
    if (lane > 0u) {
      return;
    }
    for (var other = 0u; other < min(count, MERGE_LANES); other++) {
      let ml = lane_ml[other];
      state = softmax_merge(state, SoftmaxState(lane_o[other * UNITS + thread], ml.x, ml.y));
    }
  }
  if (unit < HEAD_UNITS) {
    out[row * params.out_units + head * HEAD_UNITS + unit] = softmax_finish(state);
  }
}
