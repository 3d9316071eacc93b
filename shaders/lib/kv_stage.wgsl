// Vectors on their way into a cache with scales (kv_q8.wgsl): a block's scale follows from all of its elements, whichever thread
// computed them. A kernel puts the vector's units into kv_staged, waits for the threads that share it, and writes kv_staged_unit of
// 0 .. kv_stored_units(units) - 1. Bits follow from the vector alone. Unused where KV_SCALED is false.
const KV_STAGE: u32 = 1; // variant

var<workgroup> kv_staged: array<vec4<f32>, KV_STAGE>;

// Scales that are tried for a block (kv_scale_choice). The best has some 8% less error than the least that fits.
const KV_SCALES: u32 = 8u;

// The square of what bytes of this scale miss of `count` units from `at` on.
fn kv_block_error(at: u32, count: u32, scale: f32) -> f32 {
  var squares = vec4<f32>();
  for (var left = count; left > 0u; left--) {
    let values = kv_staged[at + left - 1u];
    let missed = fma(-kv_levels(values, scale), vec4<f32>(scale), values);
    squares = fma(missed, missed, squares);
  }
  return (squares.x + squares.y) + (squares.z + squares.w);
}

// The scale of a block of the vector of `units` that begins at `at`; 0 beyond its end.
fn kv_block_scale(at: u32, units: u32, scale_block: u32) -> f32 {
  let begin = min(scale_block * 8u, units);
  let count = min(units - begin, 8u);
  var largest = vec4<f32>();
  for (var left = count; left > 0u; left--) {
    largest = max(largest, abs(kv_staged[at + begin + left - 1u]));
  }
  let most = max(max(largest.x, largest.y), max(largest.z, largest.w));
  var best = kv_scale_choice(most, 0u);
  var least = kv_block_error(at + begin, count, best);
  // Bounds that no compiler unrolls.
  for (var left = select(0u, KV_SCALES - 1u, count > 0u); left > 0u; left--) {
    let scale = kv_scale_choice(most, KV_SCALES - left);
    let error = kv_block_error(at + begin, count, scale);
    best = select(best, scale, error < least);
    least = min(least, error);
  }
  return best;
}

// A unit of the staged vector as the cache has it: of its elements, or behind them of its scales.
fn kv_staged_unit(at: u32, units: u32, wanted: u32) -> KvUnit {
  if (wanted >= units) {
    let first = (wanted - units) * 2u;
    return kv_pack_scales(kv_block_scale(at, units, first), kv_block_scale(at, units, first + 1u));
  }
  return kv_pack(kv_staged[at + wanted], kv_block_scale(at, units, wanted / 8u));
}
