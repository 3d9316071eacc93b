// Causal attention of prompt rows over the latent, for software adapters: what mla_prefill.wgsl computes, without barriers.
//
//   s_t = scale * q_abs[h] . (c_t, k_pe_t),   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) c_t
//   over t <= position with floor(t / 256) mod 8 = lane; each chunk by itself, then merged in ascending order
//
// Tensors as in mla_prefill.wgsl.
//
// Grid (local lanes, ceil(heads / 4), ceil(rows / THREADS)): a workgroup = THREADS rows of one slot, an invocation = 4 heads of
// a row.
// Variants: see mla_attend_row.wgsl.
// A lane without tokens of a row: the empty state where another of the rows has tokens there, otherwise nothing is written.
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

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let first_row = group_id.z * THREADS;
  let row = first_row + thread;
  // Tokens that any row of the workgroup attends to.
  var end = 0u;
  var slot = 0u;
  for (var i = 0u; i < min(params.vectors, params.rows - first_row); i++) {
    let info = row_info[first_row + i];
    if (info.x != INACTIVE) {
      end = max(end, info.x + 1u);
      slot = info.y;
    }
  }
  let lane = own_lane(slot, group_id.x);
  if (row >= params.rows || lane * CHUNK >= end) {
    return;
  }
  let limit = row_info[row].x + 1u; // INACTIVE + 1 = 0
  if (limit == 0u) {
    return;
  }
  // A head beyond the last computes the last again, and isn't written.
  let first_head = group_id.y * 4u;
  let heads = min(vec4<u32>(first_head) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.heads - 1u));
  let queries = Queries(
    query_units(row, params.q_units, heads, params.key_units),
    partials_at(heads, group_id.x) + vec4<u32>(row * params.row_stride),
    min(4u, params.heads - first_head),
    limit,
  );
  mla_attend(queries, slot * params.table_stride, lane, MERGE_LANES, end, thread);
}
