// Which tile of which expert a workgroup has: the tiles of the shard's experts follow each other. The kernel declares the binding
// `pair_counts: array<u32>` and EXPERT_PARAMS (experts.ts) as `params`.

/// (row, slot)s of one expert that share a read of its weights.
const TILE_ROWS: u32 = 8u; // variant

struct ExpertTile {
  /// Counted from the shard's first; expert_count where there are no more tiles.
  expert: u32,
  /// Place in `pairs` of the tile's first (row, slot), and how many it has.
  first: u32,
  count: u32,
}

fn find_tile(index: u32) -> ExpertTile {
  var before = index;
  for (var left = params.expert_count; left > 0u; left--) {
    let expert = params.expert_count - left;
    let count = pair_counts[params.expert_first + expert];
    let tiles = (count + TILE_ROWS - 1u) / TILE_ROWS;
    if (before < tiles) {
      let start = before * TILE_ROWS;
      let first = (params.expert_first + expert) * params.rows + start;
      return ExpertTile(expert, first, min(count - start, TILE_ROWS));
    }
    before -= tiles;
  }
  return ExpertTile(params.expert_count, 0u, 0u);
}
