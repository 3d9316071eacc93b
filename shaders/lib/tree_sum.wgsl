// Adds up the sums of a contraction's segments in a binary tree: pairs of neighbours, then pairs of these; a sum without a right
// neighbour goes up as it is. A rank that holds the segments of a subtree adds them up by itself (`subtrees` in src/placement/routes.ts),
// and any number of ranks gets the same bits. Levels have names, as software adapters pay dearly for arrays by index.
//
// The kernel declares alias Summed, the sums of a segment, and TREE_LEVELS: of the tree, 0 to 7.

/// Sums that wait for their right neighbours, by level.
struct Tree {
  level0: Summed,
  level1: Summed,
  level2: Summed,
  level3: Summed,
  level4: Summed,
  level5: Summed,
  level6: Summed,
}

/// Takes the segments in ascending order; with the last, behind which there are no `more`, it gives the whole sum. `level`: where `value` is the
/// sum of a subtree whose first segment is `segment`, its height; otherwise 0.
fn tree_sum(tree: ptr<function, Tree>, segment: u32, level: u32, more: bool, value: Summed) -> Summed {
  var sum = value;
  if (TREE_LEVELS > 0u && level == 0u) {
    if ((segment & 1u) != 0u) {
      sum = (*tree).level0 + sum;
    } else if (more) {
      (*tree).level0 = sum;
      return sum;
    }
  }
  if (TREE_LEVELS > 1u && level <= 1u) {
    if ((segment & 2u) != 0u) {
      sum = (*tree).level1 + sum;
    } else if (more) {
      (*tree).level1 = sum;
      return sum;
    }
  }
  if (TREE_LEVELS > 2u && level <= 2u) {
    if ((segment & 4u) != 0u) {
      sum = (*tree).level2 + sum;
    } else if (more) {
      (*tree).level2 = sum;
      return sum;
    }
  }
  if (TREE_LEVELS > 3u && level <= 3u) {
    if ((segment & 8u) != 0u) {
      sum = (*tree).level3 + sum;
    } else if (more) {
      (*tree).level3 = sum;
      return sum;
    }
  }
  if (TREE_LEVELS > 4u && level <= 4u) {
    if ((segment & 16u) != 0u) {
      sum = (*tree).level4 + sum;
    } else if (more) {
      (*tree).level4 = sum;
      return sum;
    }
  }
  if (TREE_LEVELS > 5u && level <= 5u) {
    if ((segment & 32u) != 0u) {
      sum = (*tree).level5 + sum;
    } else if (more) {
      (*tree).level5 = sum;
      return sum;
    }
  }
  if (TREE_LEVELS > 6u && level <= 6u) {
    if ((segment & 64u) != 0u) {
      sum = (*tree).level6 + sum;
    } else if (more) {
      (*tree).level6 = sum;
      return sum;
    }
  }
  return sum;
}
