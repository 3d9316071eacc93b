// Which chunks of a head lie in this rank's cache. Joined after kv_layout.wgsl and kv_table.wgsl.

// With PER_HEAD the entries of a chunk may be another rank's: its blocks are NO_BLOCK, and so are those of all chunks of its lane.
fn holds_chunk(table: u32, chunk: u32) -> bool {
  if (PER_HEAD) {
    return entry_block(table, chunk * (CHUNK / BLOCK)) != NO_BLOCK;
  }
  return true;
}

// The merge lanes below `end` that lie here, a bit each: lane l does where chunk l does.
fn held_lanes(table: u32, end: u32) -> u32 {
  var held = 0u;
  for (var left = end; left > 0u; left--) {
    let lane = left - 1u;
    held |= select(0u, 1u << lane, holds_chunk(table, lane));
  }
  return held;
}
