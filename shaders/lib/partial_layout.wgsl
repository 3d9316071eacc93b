// Where the partials of a head and a merge lane (or chunk) lie: [rows][heads][lanes], or by bundles of neighbouring heads that travel
// together [heads / bundle_heads][lanes][rows][bundle_heads]. The kernel declares the params of LAYOUT_PARAMS (share.ts).

// Index of row 0's partial; those of the other rows are params.row_stride apart.
fn partial_at(head: u32, lane: u32) -> u32 {
  let bundle = head / params.bundle_heads;
  return bundle * params.bundle_stride + lane * params.lane_stride + (head - bundle * params.bundle_heads) * params.head_stride;
}

// The same of 4 heads.
fn partials_at(heads: vec4<u32>, lane: u32) -> vec4<u32> {
  return vec4<u32>(
    partial_at(heads.x, lane), partial_at(heads.y, lane), partial_at(heads.z, lane), partial_at(heads.w, lane),
  );
}
