// Ranks that share a sequence: merge lane l (chunks l, l + 8, ...) is of rank (l + offset) mod share_ranks, offset being that of the
// sequence's slot. So a rank's own lanes are base, base + share_ranks, ... < MERGE_LANES: its local lanes; and its own chunks, in
// ascending order, its local chunks 0, 1, .... Where share_ranks divides MERGE_LANES those are base, base + share_ranks, ..., too.
// The kernel declares chunk_offsets: array<u32> of [slots], and the params share_ranks and share_index.
// Variants: SHARED, share_ranks > 1; without it chunk_offsets isn't read. UNEVEN, share_ranks doesn't divide MERGE_LANES: ranks have
// different numbers of a sequence's lanes, or none.
const SHARED: bool = false; // variant
const UNEVEN: bool = false; // variant
const SHARE_LANES: u32 = 8u;
// A chunk, or lane, that no sequence reaches; its first token is a u32 still.
const NO_CHUNK: u32 = 0x00ffffffu;

// The first chunk, and the first merge lane, of a slot's sequence that this rank owns.
fn own_base(slot: u32) -> u32 {
  if (SHARED) {
    return (params.share_index + params.share_ranks - chunk_offsets[slot] % params.share_ranks) % params.share_ranks;
  }
  return 0u;
}

// Of lanes, or chunks, 0 .. end - 1 of one turn, those that a rank with this base owns.
fn own_in_turn(base: u32, end: u32) -> u32 {
  return select(0u, (end - base + params.share_ranks - 1u) / params.share_ranks, end > base);
}

// The merge lane that is this rank's local one; NO_CHUNK where it has fewer.
fn own_lane(slot: u32, local_lane: u32) -> u32 {
  let lane = own_base(slot) + select(local_lane, local_lane * params.share_ranks, SHARED);
  return select(lane, NO_CHUNK, UNEVEN && lane >= SHARE_LANES);
}

// The chunk that is this rank's local one; NO_CHUNK where it has none.
fn own_chunk(slot: u32, local_chunk: u32) -> u32 {
  if (UNEVEN) {
    let base = own_base(slot);
    let lanes = own_in_turn(base, SHARE_LANES);
    let turn = local_chunk / max(lanes, 1u);
    let chunk = turn * SHARE_LANES + base + (local_chunk - turn * lanes) * params.share_ranks;
    return select(chunk, NO_CHUNK, lanes == 0u);
  }
  if (SHARED) {
    return own_base(slot) + local_chunk * params.share_ranks;
  }
  return local_chunk;
}
