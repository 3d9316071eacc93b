// Where a contraction over `in_features` elements is cut into `total` segments, whose sums are added in a tree (tree_sum.wgsl).
//
//   start(s) = floor(floor(s * in_features / total) / align) * align;   start(total) = in_features
//
// segments.ts is the same on the host. A segment may be empty; its sum is zero.

fn segment_start(segment: u32, in_features: u32, total: u32, alignment: u32) -> u32 {
  if (segment >= total) {
    return in_features;
  }
  return ((segment * in_features) / total) / alignment * alignment;
}
