// Causal attention of prompt rows over the latent: the softmax state of each merge lane of this rank, 4 rows of a head a
// workgroup, which read the latent together.
//
//   s_t = scale * q_abs[h] . (c_t, k_pe_t),   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) c_t
//   over t <= position with floor(t / 256) mod 8 = lane; each chunk by itself, then merged in ascending order
//
// q_abs        [rows][q_units*4] f32, head h at h * 4 key_units: W_UK^T q_nope (R), then rotated q_pe (rope); or in pieces
//              (query_pieces.wgsl)
// latent_cache see latent_layout.wgsl, KvUnit; the rows' own tokens are there already
// row_info     [rows] (position, slot); each 4 rows have one slot
// block_table  [slot][table_stride] physical block of each BLOCK tokens; only blocks of attended tokens are read
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences
// partial_o    [rows][heads][local lanes][R] f32, unnormalised; R = 4 rank_units
// partial_ml   [rows][heads][local lanes] (m, l) f32, natural log, scale applied
// or both in bundles of heads (partial_layout.wgsl), [bundle][local lanes][rows][bundle_heads]...
//
// Grid (local lanes, heads, ceil(rows / 4)). Software adapters: mla_prefill_row.wgsl.
// A lane without tokens of a row: the empty state where another of the 4 rows has tokens there, otherwise nothing is written.
// Inactive rows: nothing is written.

struct Params {
  rows: u32,
  heads: u32,
  q_units: u32,
  // See query_pieces.wgsl.
  piece_units: u32,
  piece_1: u32,
  piece_2: u32,
  piece_3: u32,
  piece_4: u32,
  piece_5: u32,
  piece_6: u32,
  piece_7: u32,
  key_units: u32,
  rank_units: u32,
  // See partial_layout.wgsl.
  bundle_heads: u32,
  bundle_stride: u32,
  row_stride: u32,
  head_stride: u32,
  lane_stride: u32,
  table_stride: u32,
  share_ranks: u32,
  share_index: u32,
  vectors: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read> q_abs: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> latent_cache: array<KvUnit>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
@group(0) @binding(4) var<storage, read> chunk_offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> partial_o: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> partial_ml: array<vec2<f32>>;
@group(0) @binding(7) var<uniform> params: Params;

// Tokens that a row attends to: 0 for inactive rows and rows beyond the last.
fn row_limit(row: u32) -> u32 {
  if (row >= params.rows) {
    return 0u;
  }
  return row_info[row].x + 1u; // INACTIVE + 1 = 0
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group_id.y;
  let first_row = group_id.z * 4u;
  let rows = vec4<u32>(first_row) + vec4<u32>(0u, 1u, 2u, 3u);
  let limit = vec4<u32>(row_limit(rows.x), row_limit(rows.y), row_limit(rows.z), row_limit(rows.w));
  let end = max(max(limit.x, limit.y), max(limit.z, limit.w));
  // Of any active row.
  var slot = 0u;
  for (var left = min(4u, params.rows - first_row); left > 0u; left--) {
    let info = row_info[first_row + left - 1u];
    if (info.x != INACTIVE) {
      slot = info.y;
    }
  }
  let lane = own_lane(slot, group_id.x);
  if (lane * CHUNK >= end) {
    return;
  }
  let targets = vec4<u32>(partial_at(head, group_id.x)) + rows * params.row_stride;
  let first_unit = vec4<u32>(query_unit(0u, params.q_units, head, params.key_units));
  var queries: Queries;
  queries.at[0] = first_unit + min(rows, vec4<u32>(params.rows - 1u)) * params.q_units;
  queries.limit[0] = limit;
  queries.to[0] = select(targets, vec4<u32>(NOWHERE), limit == vec4<u32>());
  mla_attend(queries, slot * params.table_stride, lane, MERGE_LANES, end, thread);
}
