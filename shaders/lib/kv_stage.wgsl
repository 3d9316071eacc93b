// Vectors on their way into a cache with scales (kv_q8.wgsl): a block's scale follows from all of its elements, whichever thread
// computed them. A kernel puts the vector's units into kv_staged, waits for the threads that share it, and writes kv_staged_unit of
// 0 .. kv_stored_units(units) - 1. Bits follow from the vector alone. Unused where KV_SCALED is false.
const KV_STAGE: u32 = 1; // variant

var<workgroup> kv_staged: array<vec4<f32>, KV_STAGE>;

// The largest magnitude of a block of the vector of `units` that begins at `at`; 0 beyond its end.
fn kv_largest(at: u32, units: u32, block: u32) -> f32 {
  var largest = vec4<f32>();
  for (var i = 0u; i < 8u; i++) {
    let unit = block * 8u + i;
    if (unit < units) {
      largest = max(largest, abs(kv_staged[at + unit]));
    }
  }
  return max(max(largest.x, largest.y), max(largest.z, largest.w));
}

// A unit of the staged vector as the cache has it: of its elements, or behind them of its scales.
fn kv_staged_unit(at: u32, units: u32, unit: u32) -> KvUnit {
  let block = select(unit / 8u, (unit - units) * 2u, unit >= units);
  let largest = kv_largest(at, units, block);
  if (unit >= units) {
    return kv_pack_scales(largest, kv_largest(at, units, block + 1u));
  }
  return kv_pack(kv_staged[at + unit], kv_scale(kv_pack_scales(largest, largest), unit));
}
