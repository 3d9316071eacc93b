// One matrix a group, on a hardware adapter: contract.wgsl's outputs of a workgroup. The kernel declares weight, out, and the params
// rows, out_features, units, tile_units, out_offset, out_group, out_stride; weight tiles of group g start at tile g * (tiles of a
// group).

fn part_of(part: u32) -> Part {
  return uncut_part(part, params.units);
}

/// group: x = OUTS outputs, y = group, z = tile of TILE_ROWS rows.
fn group_outputs(group: vec3<u32>, local: vec3<u32>, thread: u32) {
  let first_out = group.x * OUTS;
  let first_row = group.z * TILE_ROWS;
  let tile = group.y * ((params.out_features + 31u) / 32u) + first_out / 32u;
  contract(tile * params.tile_units * 32u + first_out % 32u + local.x, 0u, first_row, local.x, local.y);

  for (var i = 0u; i < WRITES; i++) {
    let index = i * THREADS + thread;
    let r = index / OUTS;
    let n = first_out + index % OUTS;
    if (r < TILE_ROWS && first_row + r < params.rows && n < params.out_features) {
      let to = params.out_offset + group.y * params.out_group + n;
      out[(first_row + r) * params.out_stride + to] = sum_segments(0u, r, index % OUTS);
    }
  }
}
