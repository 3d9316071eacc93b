// Merges attention partials where ranks that hold copies of a kv head share its merge lanes, in one of two modes. Lane j is the
// chunks j, j + 8, j + 16, ... merged in ascending order; the whole is the lanes merged in order; out = o / l.
//
//   LANES  chunks of this rank to lanes, of every head: what travels to a head's home. A lane that lies elsewhere is the empty state
//   HOME   lanes of this rank, and those that came from other copies, to the output
// Merging an empty state changes nothing, so the bits are those of one rank that holds all lanes.
//
// partial_o     LANES: [rows][heads][partials][HEAD_UNITS*4] f32, unnormalised, of all chunks; those that lie elsewhere aren't read
//               HOME: [kv heads and guests][group][lanes][rows][HEAD_UNITS*4]; a guest is a kv head's lanes from another rank
// partial_ml    the same with (m, l) for a partial, f32, natural log, scale applied
// row_info      [rows] (position, slot)
// block_table   [slots][cache_kv_heads][table_stride], see kv_table.wgsl with PER_HEAD
// guests        HOME: [kv heads] (first, count) of its guests, which follow the kv heads
// out           LANES: [kv heads][group][lanes][rows][HEAD_UNITS*4] f32, unnormalised
//               HOME: [rows][out_units*4] f32; head h at h * HEAD_UNITS*4
// out_ml        LANES: [kv heads][group][lanes][rows] (m, l) f32
//
// Grid (heads, ceil(HEAD_UNITS / UNITS), rows): a workgroup = UNITS units (4 dims each) of one (row, head), UNITS <= 32.
// Inactive rows, and lanes beyond a row's chunks: nothing is written.
const HEAD_UNITS: u32 = 16; // variant
const UNITS: u32 = 16; // variant
const HOME: bool = false; // variant
const BLOCK: u32 = 64; // variant
const MERGE_LANES: u32 = 8u;
const CHUNK: u32 = 256u;
const INACTIVE: u32 = 0xffffffffu;
const NO_BLOCK: u32 = 0xffffffffu;

struct Params {
  rows: u32,
  heads: u32,
  partials: u32,
  // That partials have room for, at most MERGE_LANES.
  lanes: u32,
  // Query heads of a kv head.
  group: u32,
  out_units: u32,
  cache_kv_heads: u32,
  table_stride: u32,
}

@group(0) @binding(0) var<storage, read> partial_o: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
@group(0) @binding(4) var<storage, read> guests: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> out_ml: array<vec2<f32>>;
@group(0) @binding(7) var<uniform> params: Params;

fn partial(at: u32, unit: u32) -> SoftmaxState {
  let ml = partial_ml[at];
  return SoftmaxState(partial_o[at * HEAD_UNITS + unit], ml.x, ml.y);
}

// A lane of a query head, or of a guest's.
fn lane_at(head: u32, lane: u32, row: u32) -> u32 {
  return (head * params.lanes + lane) * params.rows + row;
}

@compute @workgroup_size(UNITS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group_id.x;
  let row = group_id.z;
  let unit = group_id.y * UNITS + thread;
  let info = row_info[row];
  if (info.x == INACTIVE || unit >= HEAD_UNITS) {
    return;
  }
  let kv_head = head / params.group;
  let table = head_table(info.y, kv_head);
  let chunks = (info.x - evicted_entries(table)) / CHUNK + 1u;
  let lanes = min(chunks, params.lanes);

  if (!HOME) {
    let base = (row * params.heads + head) * params.partials;
    for (var lane = 0u; lane < lanes; lane++) {
      var state = softmax_empty();
      if (holds_chunk(table, lane)) {
        for (var chunk = lane; chunk < min(chunks, params.partials); chunk += MERGE_LANES) {
          state = softmax_merge(state, partial(base + chunk, unit));
        }
      }
      let to = lane_at(head, lane, row);
      out[to * HEAD_UNITS + unit] = state.o;
      if (unit == 0u) {
        out_ml[to] = vec2<f32>(state.m, state.l);
      }
    }
    return;
  }

  let guest = guests[kv_head];
  var whole = softmax_empty();
  for (var lane = 0u; lane < lanes; lane++) {
    var state = partial(lane_at(head, lane, row), unit);
    for (var i = guest.x; i < guest.x + guest.y; i++) {
      state = softmax_merge(state, partial(lane_at(i * params.group + head % params.group, lane, row), unit));
    }
    whole = softmax_merge(whole, state);
  }
  out[row * params.out_units + head * HEAD_UNITS + unit] = softmax_finish(whole);
}
