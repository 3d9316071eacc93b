// Ranks that share a sequence: chunk c is of rank (c + offset) mod share_ranks, offset being that of the sequence's slot. So a
// rank's own chunks are base, base + share_ranks, ...: its local chunks 0, 1, .... share_ranks divides MERGE_LANES: the rank
// owns whole merge lanes, base, base + share_ranks, ... < MERGE_LANES: its local lanes.
// The kernel declares chunk_offsets: array<u32> of [slots], and the params share_ranks and share_index.
// Variant: SHARED, share_ranks > 1. Without it chunk_offsets isn't read.
const SHARED: bool = false; // variant

// The first chunk, and the first merge lane, of a slot's sequence that this rank owns.
fn own_base(slot: u32) -> u32 {
  if (SHARED) {
    return (params.share_index + params.share_ranks - chunk_offsets[slot] % params.share_ranks) % params.share_ranks;
  }
  return 0u;
}

// The chunk, or merge lane, that is this rank's local one.
fn own_chunk(slot: u32, local_chunk: u32) -> u32 {
  if (SHARED) {
    return own_base(slot) + local_chunk * params.share_ranks;
  }
  return local_chunk;
}
