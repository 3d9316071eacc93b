// Merges the attention partials of each (row, head), in one of three modes. Lane j is the chunks j, j + 8, j + 16, ... merged in
// ascending order; the whole is the lanes merged in a binary tree: those 4 apart, then those 2 apart, then the rest; out = o / l.
// Chunks are those of the head's position - evicted + 1 entries (kv_table.wgsl).
//
//   ALL    a rank that holds every chunk: all of it, from partials j, j + 8, ... of lane j
//   LANES  a rank that holds some lanes: those, from its chunks, and no further: what travels. JOINS: of every second or fourth lane,
//          which are a subtree, what they come to
//   HOME   the rest, from the lanes of all ranks that hold some, or from what they came to
// BOTH_WAYS: those up to seen_end (runs.wgsl).
// Chunks before the row's window (window.wgsl) are left out; a lane without any other is empty.
// The same bits either way, whatever the number of ranks.
//
// Lanes lie compactly: a rank has those of a head that it holds one behind the other, in ascending order. Which ones they are its share
// of the sequences says (share.wgsl), or, HOLES, the head's table (kv_holes.wgsl).
//
// partial_o     ALL, LANES: [rows][heads][partials][HEAD_UNITS*4] f32, unnormalised; of chunks, LANES: of local chunks, HOLES: of all,
//               those that lie elsewhere aren't read. ALL and JOINS also take the lanes of prompt rows.
//               HOME: states of lanes, [lanes][rows][bundle_heads][HEAD_UNITS*4] of each bundle of heads and rank, wherever sources say
// partial_ml    the same with (m, l) for a partial, f32, natural log, scale applied
// row_info      [rows] (position, slot)
// chunk_offsets [slots]; read where ranks share the sequences, by HOME and LANES; behind them ends, see runs.wgsl
// block_table   see kv_table.wgsl; read only with PER_HEAD
// sources       HOME: [heads / bundle_heads][share_ranks]: where the states of the rank with index (lane + chunk_offsets[slot]) mod
//               share_ranks begin in partial_ml. With COPIES [..][8]: of each copy; the last word of the head's table has four bits for
//               each lane, the number of the copy that holds it
// out           ALL, HOME: [rows][out_units*4] f32; head h at h * HEAD_UNITS*4; ALL: or in pieces of heads (query_pieces.wgsl)
//               LANES: in bundles of heads (partial_layout.wgsl), [bundle][lanes][rows][bundle_heads][HEAD_UNITS*4] f32, unnormalised
// out_ml        LANES: [bundle][lanes][rows][bundle_heads] (m, l) f32
//
// Grid (heads, ceil(HEAD_UNITS / UNITS), rows): a workgroup = UNITS units (4 dims each) of one (row, head), PARALLEL threads
// each: for software adapters 1 (no barrier), for GPUs a thread a lane (ALL: 8, LANES: lane_room), HOME: 1. UNITS <= 32.
// TREE_LANES: those of the tree, a power of two: 8, with JOINS lane_room, and in HOME the ranks whose lanes are joined.
// Inactive rows, and lanes without chunks: nothing is written. A row without keys can't exist; a state with l = 0 gives 0.
const HEAD_UNITS: u32 = 16; // variant
const UNITS: u32 = 16; // variant
const PARALLEL: u32 = 8; // variant
const MODE: u32 = 0; // variant
const JOINS: bool = false; // variant
const TREE_LANES: u32 = 8; // variant
const HOLES: bool = false; // variant
const COPIES: bool = false; // variant
const BLOCK: u32 = 64; // variant
const ALL: u32 = 0u;
const LANES: u32 = 1u;
const HOME: u32 = 2u;
const THREADS: u32 = UNITS * PARALLEL;
const MERGE_LANES: u32 = 8u;
const CHUNK: u32 = 256u;
const INACTIVE: u32 = 0xffffffffu;
const NO_BLOCK: u32 = 0xffffffffu;

struct Params {
  rows: u32,
  heads: u32,
  partials: u32,
  out_units: u32,
  share_ranks: u32,
  share_index: u32,
  // Lanes of a rank, the most of any: where lanes are even also the local chunks from one to the next of a lane.
  lane_room: u32,
  // See partial_layout.wgsl; HOME: of bundle_heads alone.
  bundle_heads: u32,
  bundle_stride: u32,
  row_stride: u32,
  head_stride: u32,
  lane_stride: u32,
  // See query_pieces.wgsl.
  piece_units: u32,
  piece_1: u32,
  piece_2: u32,
  piece_3: u32,
  piece_4: u32,
  piece_5: u32,
  piece_6: u32,
  piece_7: u32,
  // PER_HEAD: query heads of a kv head, and where its kv heads stand in the tables.
  group: u32,
  cache_kv_heads: u32,
  first_kv_head: u32,
  table_stride: u32,
  // See window.wgsl.
  window: u32,
  softcap: f32,
  // See runs.wgsl.
  run_rows: u32,
  run_ends: u32,
}

@group(0) @binding(0) var<storage, read> partial_o: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> partial_ml: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> chunk_offsets: array<u32>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read> sources: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> out_ml: array<vec2<f32>>;
@group(0) @binding(8) var<uniform> params: Params;

var<workgroup> lane_o: array<vec4<f32>, THREADS>;
var<workgroup> lane_ml: array<vec2<f32>, PARALLEL>;

fn partial(at: u32, unit: u32) -> SoftmaxState {
  let ml = partial_ml[at];
  return SoftmaxState(partial_o[at * HEAD_UNITS + unit], ml.x, ml.y);
}

// Lanes of this rank of a slot's sequence, at least one: also the local chunks from one to the next of a lane.
fn lane_step(slot: u32) -> u32 {
  if (UNEVEN) {
    return max(1u, own_in_turn(own_base(slot), MERGE_LANES));
  }
  return params.lane_room;
}

// Partials lane, lane + step, ... < count of a (row, head), without those below `skip`.
fn merge_lane(base: u32, lane: u32, step: u32, skip: u32, count: u32, unit: u32) -> SoftmaxState {
  var state = softmax_empty();
  var i = lane;
  if (WINDOWED) {
    i += steps(lane, skip, step) * step;
  }
  for (var left = steps(i, count, step); left > 0u; left--) {
    state = softmax_merge(state, partial(base + i, unit));
    i += step;
  }
  return state;
}

// This rank's chunks of a sequence of `chunks`.
fn local_count(slot: u32, chunks: u32) -> u32 {
  if (UNEVEN) {
    let base = own_base(slot);
    return chunks / MERGE_LANES * own_in_turn(base, MERGE_LANES) + own_in_turn(base, chunks % MERGE_LANES);
  }
  if (SHARED) {
    return own_in_turn(own_base(slot), chunks);
  }
  return chunks;
}

// A lane, or what lanes came to, wherever it comes from.
fn home_lane(row: u32, head: u32, slot: u32, table: u32, lane: u32, unit: u32) -> SoftmaxState {
  let bundle = head / params.bundle_heads;
  var first = bundle * MERGE_LANES;
  // A rank's lower lanes come before this one.
  var local = 0u;
  if (COPIES) {
    let holders = block_table[table + params.table_stride - 1u];
    let holder = (holders >> (4u * lane)) & 15u;
    first += holder;
    // The lowest of four bits is set for the lanes that another copy holds.
    let others = holders ^ (holder * 0x11111111u);
    let elsewhere = (others | (others >> 1u) | (others >> 2u) | (others >> 3u)) & 0x11111111u;
    local = lane - countOneBits(elsewhere & ((1u << (4u * lane)) - 1u));
  } else {
    let ranks = params.share_ranks;
    first = bundle * ranks + (lane + chunk_offsets[slot] % ranks) % ranks;
    local = lane / ranks;
  }
  let at = sources[first] + (local * params.rows + row) * params.bundle_heads + head % params.bundle_heads;
  return partial(at, unit);
}

// Lane `index` of the tree's order, in which those half of its width apart come first: 0 4 2 6 1 5 3 7.
fn tree_lane(index: u32) -> u32 {
  return (reverseBits(index) >> 1u) >> (31u - countTrailingZeros(TREE_LANES));
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group_id: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let head = group_id.x;
  let row = group_id.z;
  let info = row_info[row];
  if (info.x == INACTIVE) {
    return;
  }
  let table = head_table(info.y, params.first_kv_head + head / params.group);
  let gone = evicted_entries(table);
  let last = info.x - gone;
  let chunks = (seen_end(info.x, info.y) - 1u - gone) / CHUNK + 1u;
  var skip = 0u;
  if (WINDOWED) {
    skip = local_count(info.y, first_seen(last) / CHUNK);
  }
  let base = (row * params.heads + head) * params.partials;
  let unit = group_id.y * UNITS + thread % UNITS;
  // The last workgroup of a head may have threads beyond it; they compute its last unit and write nothing.
  let loaded_unit = min(unit, HEAD_UNITS - 1u);

  let count = min(params.partials, local_count(info.y, chunks));
  let first = partial_at(head, 0u) + row * params.row_stride;
  if (MODE == LANES && !JOINS) {
    var held = 0u;
    if (HOLES) {
      held = held_lanes(table, min(count, MERGE_LANES));
    }
    let step = lane_step(info.y);
    let own_lanes = steps(thread / UNITS, min(count, step), PARALLEL);
    for (var left = own_lanes; left > 0u; left--) {
      let lane = thread / UNITS + (own_lanes - left) * PARALLEL;
      var local = lane;
      if (HOLES) {
        if ((held & (1u << lane)) == 0u) {
          continue;
        }
        local = countOneBits(held & ((1u << lane) - 1u));
      }
      let own = merge_lane(base, lane, step, skip, count, loaded_unit);
      let to = first + local * params.lane_stride;
      if (unit < HEAD_UNITS) {
        out[to * HEAD_UNITS + unit] = own.o;
      }
      if (unit == 0u) {
        out_ml[to] = vec2<f32>(own.m, own.l);
      }
    }
    return;
  }

  // Lanes of the tree that there are.
  let lanes = min(select(count, chunks, MODE == HOME), TREE_LANES);
  if (PARALLEL > 1u) {
    let own = merge_lane(base, thread / UNITS, params.lane_room, skip, count, loaded_unit);
    lane_o[thread] = own.o;
    if (thread % UNITS == 0u) {
      lane_ml[thread / UNITS] = vec2<f32>(own.m, own.l);
    }
    workgroupBarrier();
    if (thread >= UNITS) {
      return;
    }
  }
  // What waits for lanes 4, 2 and 1 further.
  var waiting_4 = softmax_empty();
  var waiting_2 = softmax_empty();
  var waiting_1 = softmax_empty();
  var state = softmax_empty();
  var index = 0u;
  for (var left = lanes; left > 0u; left--) {
    var lane = tree_lane(index);
    for (var missing = TREE_LANES; missing > 0u; missing--) {
      if (lane < lanes) {
        break;
      }
      index++;
      lane = tree_lane(index);
    }
    index++;
    if (MODE == HOME) {
      state = home_lane(row, head, info.y, table, lane, loaded_unit);
    } else if (PARALLEL > 1u) {
      let ml = lane_ml[lane];
      state = SoftmaxState(lane_o[lane * UNITS + thread], ml.x, ml.y);
    } else {
      state = merge_lane(base, lane, params.lane_room, skip, count, loaded_unit);
    }
    for (var level = countTrailingZeros(TREE_LANES); level > 0u; level--) {
      let bit = 1u << (level - 1u);
      if ((lane & bit) != 0u) {
        var before = waiting_1;
        if (bit == 4u) {
          before = waiting_4;
        } else if (bit == 2u) {
          before = waiting_2;
        }
        state = softmax_merge(before, state);
      } else if ((lane & (bit - 1u)) + bit < lanes) {
        if (bit == 4u) {
          waiting_4 = state;
        } else if (bit == 2u) {
          waiting_2 = state;
        } else {
          waiting_1 = state;
        }
        break;
      }
    }
  }
  if (unit >= HEAD_UNITS || (MODE == LANES && lanes == 0u)) {
    return;
  }
  if (MODE == LANES) {
    out[first * HEAD_UNITS + unit] = state.o;
    if (unit == 0u) {
      out_ml[first] = vec2<f32>(state.m, state.l);
    }
  } else {
    out[query_unit(row, params.out_units, head, HEAD_UNITS) + unit] = softmax_finish(state);
  }
}
