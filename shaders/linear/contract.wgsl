// The contraction of a workgroup on a hardware adapter: OUTS = LANES * EACH outputs of a tile x TILE_ROWS rows x MATRICES
// matrices (gate and up). serial.wgsl is its counterpart for software adapters.
//
// K is cut into PARTS parts, SUBS a segment: part segment * SUBS + sub takes the units sub, sub + SUBS, ... of its segment in
// ascending order (unit_add). The parts of a segment are added in order, then the segments in a tree (lib/tree_sum.wgsl): so bits follow
// from the model's number of segments alone.
//
// Decode waits for memory, so a thread first asks for UNROLL units of each of its outputs, then multiplies; the next units are
// asked for before these are used, and the first ones behind what is staged of the activations, which is awaited meanwhile. Loops
// have constant bounds or count down: what browsers put into other loops to make sure that they end keeps compilers from unrolling
// them.
//
// Units are those of the weights' fragment, of which fn stage_units(first_row, thread) may stage a tile's activations anew.
// Joined after lib/steps.wgsl. The kernel declares the bindings weight and scale, fn load_x(row, k4), fn ask_x(row, thread) ->
// Asked, which fn stage_x(row, thread, asked) stages and may have a barrier, and fn part_of(part) -> Part.
//
// Variants that change no bit: LANES (4, 8, 16 or 32), EACH, TILE_ROWS, PASSES, SLICES (at most PARTS), UNROLL
// and UNROLLED.

const TILE_ROWS: u32 = 1u; // variant
const MATRICES: u32 = 1u; // variant
/// 2: gate and up one after the other, in the same workgroup memory; otherwise side by side.
const PASSES: u32 = 1u; // variant
const LANES: u32 = 8u; // variant
const EACH: u32 = 1u; // variant
const SLICES: u32 = 32u; // variant
const SUBS: u32 = 32u; // variant
const PARTS: u32 = 32u; // variant
const UNROLL: u32 = 4u; // variant
/// Whether other loops have bounds that a compiler may unroll.
const UNROLLED: bool = true; // variant
/// A part may begin or end within a unit.
const CUT: bool = false; // variant
const TREE_LEVELS: u32 = 0u; // variant

alias Summed = f32;

const OUTS: u32 = LANES * EACH;
const THREADS: u32 = LANES * SLICES;
const SUMS: u32 = TILE_ROWS * MATRICES * EACH;
const PASS_SUMS: u32 = SUMS / PASSES;
/// Matrices at a time.
const BESIDE: u32 = MATRICES / PASSES;
const LOADS: u32 = UNROLL * BESIDE * EACH;
const ROUNDS: u32 = (PARTS + SLICES - 1u) / SLICES;
/// Rounds in which the threads of a workgroup write its outputs.
const WRITES: u32 = (OUTS * TILE_ROWS + THREADS - 1u) / THREADS;

/// The units first, first + step, ... of a part, `count` of them; with CUT only its vec4s in [start4, end4). `first` exists also
/// where count is 0. `base` and `row`: added to those of the contraction, where its parts multiply other weights and rows.
struct Part {
  first: u32,
  count: u32,
  step: u32,
  start4: u32,
  end4: u32,
  base: u32,
  row: u32,
}

/// A part of a contraction of `units` units that is one segment. An empty part names a unit that exists: it is asked for all the same.
fn uncut_part(part: u32, units: u32) -> Part {
  return Part(select(0u, part, part < units), steps(part, units, SUBS), SUBS, 0u, 0u, 0u, 0u);
}

/// Of a pass: [part][(matrix * TILE_ROWS + row) * EACH + output of a thread][lane]
var<workgroup> partials: array<f32, PARTS * PASS_SUMS * LANES>;

/// `count`, which compilers don't see unless UNROLLED: a weight has 32 units and more, and at least one a segment.
fn loop_count(count: u32) -> u32 {
  return select(min(count, arrayLength(&weight)), count, UNROLLED);
}

/// Where the `load`-th load of a batch lies, which asks for the units `done` .. `done` + UNROLL - 1 of a part; beyond it for the last
/// one again, which nobody uses. `base`: unit 0 of a thread's first output; its others lie LANES further each, those of the
/// second matrix `up_step`.
fn load_index(load: u32, base: u32, up_step: u32, part: Part, done: u32) -> u32 {
  let unit = part.first + min(done + load / (BESIDE * EACH), max(part.count, 1u) - 1u) * part.step;
  return base + part.base + load / EACH % BESIDE * up_step + unit * 32u + load % EACH * LANES;
}

fn load_words(base: u32, up_step: u32, part: Part, done: u32) -> array<vec4<u32>, LOADS> {
  var words = array<vec4<u32>, LOADS>();
  for (var load = 0u; load < LOADS; load++) {
    words[load] = weight[load_index(load, base, up_step, part, done)];
  }
  return words;
}

fn load_scales(base: u32, up_step: u32, part: Part, done: u32) -> array<Scale, LOADS> {
  var scales = array<Scale, LOADS>();
  for (var load = 0u; load < LOADS; load++) {
    scales[load] = unit_scale(load_index(load, base, up_step, part, done));
  }
  return scales;
}

fn part_x(row: u32, k4: u32, part: Part) -> Unit {
  var values = load_x_unit(row + part.row, k4);
  if (CUT) {
    let zero = Unit();
    for (var i = 0u; i < PIECE4; i++) {
      let inside = k4 + i >= part.start4 && k4 + i < part.end4;
      values[i] = select(zero[i], values[i], inside);
    }
  }
  return values;
}

/// The sums of a pass and part, whose first units are in `words` and `scales`, to `partials`.
fn contract_part(
  base: u32,
  up_step: u32,
  part: Part,
  index: u32,
  first_words: array<vec4<u32>, LOADS>,
  first_scales: array<Scale, LOADS>,
  first_row: u32,
  lane: u32,
) {
  var next_words = first_words;
  var next_scales = first_scales;
  // The initialiser is needed: without it some implementations keep the values of the last iteration.
  var sums = array<Sum, PASS_SUMS>();
  var done = 0u;
  for (var left = (part.count + UNROLL - 1u) / UNROLL; left > 0u; left--) {
    let words = next_words;
    let scales = next_scales;
    if (left > 1u) {
      next_words = load_words(base, up_step, part, done + UNROLL);
      next_scales = load_scales(base, up_step, part, done + UNROLL);
    }
    for (var u = 0u; u < UNROLL; u++) {
      if (u == 0u || done + u < part.count) {
        for (var piece = 0u; piece < UNIT_PIECES; piece++) {
          let k4 = (part.first + (done + u) * part.step) * UNIT4 + piece * PIECE4;
          var values: Unit;
          if (TILE_ROWS == 1u) {
            values = part_x(first_row, k4, part);
          }
          for (var m = 0u; m < BESIDE; m++) {
            for (var e = 0u; e < EACH; e++) {
              let load = (u * BESIDE + m) * EACH + e;
              let weights = unit_values(piece_words(words[load], piece), piece_scale(scales[load], piece));
              for (var r = 0u; r < TILE_ROWS; r++) {
                if (TILE_ROWS > 1u) {
                  values = part_x(first_row + r, k4, part);
                }
                let at = (m * TILE_ROWS + r) * EACH + e;
                sums[at] = unit_add(sums[at], weights, scales[load], values);
              }
            }
          }
        }
      }
    }
    done += UNROLL;
  }
  for (var at = 0u; at < PASS_SUMS; at++) {
    partials[(index * PASS_SUMS + at) * LANES + lane] = sum_total(sums[at]);
  }
}

/// The sums of a pass: of this thread's parts, the first of which is `first_part` with its first units in `words` and `scales`.
fn contract_rounds(
  pass_index: u32,
  base: u32,
  up_step: u32,
  first_part: Part,
  first_words: array<vec4<u32>, LOADS>,
  first_scales: array<Scale, LOADS>,
  first_row: u32,
  lane: u32,
  slice: u32,
) {
  let first = base + pass_index * up_step;
  var part = first_part;
  var words = first_words;
  var scales = first_scales;
  var round = 0u;
  for (var left = loop_count(ROUNDS); left >= 1u; left--) {
    let index = round * SLICES + slice;
    if (index < PARTS) {
      if (round > 0u) {
        part = part_of(index);
        words = load_words(first, up_step, part, 0u);
        scales = load_scales(first, up_step, part, 0u);
      }
      contract_part(first, up_step, part, index, words, scales, first_row, lane);
    }
    round++;
  }
}

/// Leaves the sums of all parts of the first pass in `partials`, after the next barrier.
fn contract_first(base: u32, up_step: u32, first_row: u32, lane: u32, slice: u32) {
  let thread = slice * LANES + lane;
  let asked = ask_x(first_row, thread);
  let part = part_of(slice);
  let words = load_words(base, up_step, part, 0u);
  let scales = load_scales(base, up_step, part, 0u);
  stage_x(first_row, thread, asked);
  stage_units(first_row, thread);
  contract_rounds(0u, base, up_step, part, words, scales, first_row, lane, slice);
}

/// The same of the second pass, after a barrier.
fn contract_second(base: u32, up_step: u32, first_row: u32, lane: u32, slice: u32) {
  let part = part_of(slice);
  let words = load_words(base + up_step, up_step, part, 0u);
  let scales = load_scales(base + up_step, up_step, part, 0u);
  contract_rounds(1u, base, up_step, part, words, scales, first_row, lane, slice);
}

/// Leaves the sums of all parts in `partials`, where there is one pass.
fn contract(base: u32, up_step: u32, first_row: u32, lane: u32, slice: u32) {
  contract_first(base, up_step, first_row, lane, slice);
  workgroupBarrier();
}

/// Of a segment, counted from the first of this rank; `matrix` of the pass, `row` of the tile, `out_lane` < OUTS. After a barrier.
fn segment_sum(segment: u32, matrix: u32, row: u32, out_lane: u32) -> f32 {
  var at = (segment * SUBS * PASS_SUMS + (matrix * TILE_ROWS + row) * EACH + out_lane / LANES) * LANES + out_lane % LANES;
  var total = partials[at];
  for (var left = loop_count(SUBS) - 1u; left >= 1u; left--) {
    at += PASS_SUMS * LANES;
    total += partials[at];
  }
  return total;
}

fn sum_segments(matrix: u32, row: u32, out_lane: u32) -> f32 {
  var tree = Tree();
  var total = 0.0;
  var segment = 0u;
  for (var left = loop_count(PARTS / SUBS); left >= 1u; left--) {
    let sum = segment_sum(segment, matrix, row, out_lane);
    total = tree_sum(&tree, segment, 0u, segment + 1u < PARTS / SUBS, sum);
    segment++;
  }
  return total;
}
