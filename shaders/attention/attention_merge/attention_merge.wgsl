// Merges the attention partials of each (row, head), in one of three modes. Lane j is the chunks j, j + 8, j + 16, ... merged in
// ascending order; the whole is the lanes merged in order; out = o / l. Chunks are those of the head's position - evicted + 1
// entries (kv_table.wgsl).
//
//   ALL    a rank that holds every chunk: all of it, from partials j, j + 8, ... of lane j
//   LANES  a rank that shares the sequences: its own lanes, from its local chunks, and no further: what travels
//   HOME   the rest, from the lanes of all share_ranks ranks
// The same bits either way, whatever the number of ranks.
//
// partial_o     ALL, LANES: [rows][heads][partials][HEAD_UNITS*4] f32, unnormalised; of chunks, LANES: of local chunks. ALL also
//               takes the lanes of prompt rows.
//               HOME: [share_ranks][partials][rows][heads][HEAD_UNITS*4]; of each rank's local lanes
// partial_ml    the same with (m, l) for a partial, f32, natural log, scale applied
// row_info      [rows] (position, slot)
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences
// block_table   see kv_table.wgsl; read only with PER_HEAD
// out           ALL, HOME: [rows][out_units*4] f32; head h at h * HEAD_UNITS*4
//               LANES: [lane_step][rows][heads][HEAD_UNITS*4] f32, unnormalised: o of this rank's local lanes
// out_ml        LANES: [lane_step][rows][heads] (m, l) f32
//
// Grid (heads, ceil(HEAD_UNITS / UNITS), rows): a workgroup = UNITS units (4 dims each) of one (row, head), PARALLEL threads
// each: for software adapters 1 (no barrier), for GPUs a thread a lane (ALL: 8, LANES: lane_step), HOME: 1. UNITS <= 32.
// Inactive rows, and lanes without chunks: nothing is written. A row without keys can't exist; a state with l = 0 gives 0.
const HEAD_UNITS: u32 = 16; // variant
const UNITS: u32 = 16; // variant
const PARALLEL: u32 = 8; // variant
const MODE: u32 = 0; // variant
const ALL: u32 = 0u;
const LANES: u32 = 1u;
const HOME: u32 = 2u;
const THREADS: u32 = UNITS * PARALLEL;
const MERGE_LANES: u32 = 8u;
const CHUNK: u32 = 256u;
const INACTIVE: u32 = 0xffffffffu;

struct Params {
  rows: u32,
  heads: u32,
  partials: u32,
  out_units: u32,
  share_ranks: u32,
  share_index: u32,
  // Lanes of a rank: MERGE_LANES / share_ranks; LANES: also the local chunks from one to the next of a lane.
  lane_step: u32,
  // PER_HEAD: query heads of a kv head, and where its kv heads stand in the tables.
  group: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  table_stride: u32,
}

@group(0) @binding(0) var<storage, read> partial_o: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> chunk_offsets: array<u32>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> out_ml: array<vec2<f32>>;
@group(0) @binding(7) var<uniform> params: Params;

var<workgroup> lane_o: array<vec4<f32>, THREADS>;
var<workgroup> lane_ml: array<vec2<f32>, PARALLEL>;

fn partial(at: u32, unit: u32) -> SoftmaxState {
  let ml = partial_ml[at];
  return SoftmaxState(partial_o[at * HEAD_UNITS + unit], ml.x, ml.y);
}

// Partials lane, lane + lane_step, ... < count of a (row, head).
fn merge_lane(base: u32, lane: u32, count: u32, unit: u32) -> SoftmaxState {
  var state = softmax_empty();
  for (var i = lane; i < count; i += params.lane_step) {
    state = softmax_merge(state, partial(base + i, unit));
  }
  return state;
}

// This rank's chunks of a sequence of `chunks`.
fn local_count(slot: u32, chunks: u32) -> u32 {
  if (SHARED) {
    let before = own_base(slot);
    return select(0u, (chunks - before + params.share_ranks - 1u) / params.share_ranks, chunks > before);
  }
  return chunks;
}

// Lanes 0 .. count - 1 of all ranks.
fn merge_home(row: u32, head: u32, offset: u32, count: u32, unit: u32) -> SoftmaxState {
  var state = softmax_empty();
  for (var lane = 0u; lane < count; lane++) {
    let owner = (lane + offset) % params.share_ranks;
    let run = owner * params.partials + lane / params.share_ranks;
    state = softmax_merge(state, partial((run * params.rows + row) * params.heads + head, unit));
  }
  return state;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group_id.x;
  let row = group_id.z;
  let info = row_info[row];
  if (info.x == INACTIVE) {
    return;
  }
  var last = info.x;
  if (PER_HEAD) {
    last -= evicted_entries(head_table(info.y, params.first_kv_head + head / params.group));
  }
  let chunks = last / CHUNK + 1u;
  let base = (row * params.heads + head) * params.partials;
  let unit = group_id.y * UNITS + thread % UNITS;
  // The last workgroup of a head may have threads beyond it; they compute its last unit and write nothing.
  let loaded_unit = min(unit, HEAD_UNITS - 1u);

  if (MODE == LANES) {
    let count = min(params.partials, local_count(info.y, chunks));
    for (var lane = thread / UNITS; lane < min(count, params.lane_step); lane += PARALLEL) {
      let own = merge_lane(base, lane, count, loaded_unit);
      let to = (lane * params.rows + row) * params.heads + head;
      if (unit < HEAD_UNITS) {
        out[to * HEAD_UNITS + unit] = own.o;
      }
      if (unit == 0u) {
        out_ml[to] = vec2<f32>(own.m, own.l);
      }
    }
    return;
  }

  var state = softmax_empty();
  if (MODE == HOME) {
    let count = min(chunks, min(MERGE_LANES, params.partials * params.share_ranks));
    var offset = 0u;
    if (SHARED) {
      offset = chunk_offsets[info.y] % params.share_ranks;
    }
    state = merge_home(row, head, offset, count, loaded_unit);
  } else if (PARALLEL == 1u) {
    let count = min(params.partials, chunks);
    for (var lane = 0u; lane < min(count, MERGE_LANES); lane++) {
      state = softmax_merge(state, merge_lane(base, lane, count, loaded_unit));
    }
  } else {
    let count = min(params.partials, chunks);
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
