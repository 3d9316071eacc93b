// Vectors on their way into a cache with scales (kv_q8.wgsl): a block's scale follows from all of its elements, whichever thread
// computed them. A kernel puts the vector's units into kv_staged, waits for the threads that share it, and writes kv_staged_unit of
// 0 .. kv_stored_units(units) - 1. Bits follow from the vector alone. Unused where KV_SCALED is false.
const KV_STAGE: u32 = 1; // variant

var<workgroup> kv_staged: array<vec4<f32>, KV_STAGE>;

// The largest magnitude of a block of the vector of `units` that begins at `at`; 0 beyond its end.
fn kv_largest(at: u32, units: u32, scale_block: u32) -> f32 {
  var largest = vec4<f32>();
  for (var i = 0u; i < 8u; i++) {
    let own = scale_block * 8u + i;
    if (own < units) {
      largest = max(largest, abs(kv_staged[at + own]));
    }
  }
  return max(max(largest.x, largest.y), max(largest.z, largest.w));
}

// A unit of the staged vector as the cache has it: of its elements, or behind them of its scales.
fn kv_staged_unit(at: u32, units: u32, wanted: u32) -> KvUnit {
  let scale_block = select(wanted / 8u, (wanted - units) * 2u, wanted >= units);
  let largest = kv_largest(at, units, scale_block);
  if (wanted >= units) {
    return kv_pack_scales(largest, kv_largest(at, units, scale_block + 1u));
  }
  return kv_pack(kv_staged[at + wanted], kv_scale(kv_pack_scales(largest, largest), wanted));
}
