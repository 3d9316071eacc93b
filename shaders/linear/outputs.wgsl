// The entry point of kernels that multiply rows by one matrix on a hardware adapter: contract.wgsl, then output.wgsl or
// output_segments.wgsl. Grid: x = OUTS outputs, y = tile of TILE_ROWS rows. The kernel declares LINEAR_PARAMS (problem.ts) and the
// bindings that those fragments need.
//
// SEGMENT_TOTAL: the model's number of segments; fixes the order of the sums.

const SEGMENT_TOTAL: u32 = 1u; // variant

/// Whether this workgroup is the first of a row of the grid.
var<private> first_group: bool = false;

/// Part segment * SUBS + sub of this rank's segments.
fn part_of(part: u32) -> Part {
  var start = 0u;
  var end = params.model_in_features;
  if (SEGMENT_TOTAL > 1u) {
    let segment = params.segment_first + part / SUBS;
    start = segment_start(segment, params.model_in_features, SEGMENT_TOTAL, params.segment_align);
    end = segment_start(segment + 1u, params.model_in_features, SEGMENT_TOTAL, params.segment_align);
  }
  let first = start / UNIT + part % SUBS;
  let count = steps(first, (end + UNIT - 1u) / UNIT, SUBS);
  // An empty part names a unit that exists: it is asked for all the same.
  return Part(select(first, params.first_unit, count == 0u), count, SUBS, start / 4u, (end + 3u) / 4u, 0u, 0u);
}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  first_group = group.x == 0u;
  let first_out = group.x * OUTS;
  let first_row = group.y * TILE_ROWS;
  let base = ((first_out / 32u) * params.units - params.first_unit) * 32u + first_out % 32u + local.x;
  let up_step = (params.out_features + 31u) / 32u * params.units * 32u;
  contract_first(base, up_step, first_row, local.x, local.y);

  // Of the first pass, where gate and up take turns.
  var gates = array<f32, WRITES>();
  for (var turn = 0u; turn < PASSES; turn++) {
    workgroupBarrier();
    if (PASSES == 2u && turn > 0u) {
      contract_second(base, up_step, first_row, local.x, local.y);
    }
    workgroupBarrier();
    for (var i = 0u; i < WRITES; i++) {
      let index = i * THREADS + thread;
      let r = index / OUTS;
      let row = first_row + r;
      let out_lane = index % OUTS;
      let n = first_out + out_lane;
      if (r < TILE_ROWS && row < params.rows && n < params.out_features) {
        if (SEGMENTS_OUT) {
          var segment = 0u;
          for (var left = loop_count(PARTS / SUBS); left >= 1u; left--) {
            write_segment(segment, row, n, segment_sum(segment, 0u, r, out_lane));
            segment++;
          }
        } else if (turn + 1u < PASSES) {
          gates[i] = sum_segments(0u, r, out_lane);
        } else if (PASSES == 2u) {
          write_swiglu(row, n, gates[i], sum_segments(0u, r, out_lane));
        } else if (MATRICES == 2u) {
          write_swiglu(row, n, sum_segments(0u, r, out_lane), sum_segments(MATRICES - 1u, r, out_lane));
        } else {
          write_output(row, n, sum_segments(0u, r, out_lane));
        }
      }
    }
  }
}
