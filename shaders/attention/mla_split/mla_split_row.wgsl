// Split-KV attention of generated rows over the latent, for software adapters: what mla_split.wgsl computes, without barriers.
//
//   s_t = scale * q_abs[h] . (c_t, k_pe_t),   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) c_t
//   t in the chunk, t <= position
//
// Tensors as in mla_split.wgsl. Variant FINISHES: steps of one chunk; partial_o is attention's output o / l.
//
// Grid (local chunks, ceil(heads / (4 THREADS)), rows): an invocation = 4 heads of the row. Variants: see mla_attend_row.wgsl.
// Chunks beyond the row's tokens and inactive rows: nothing is written.
const FINISHES: bool = false; // variant

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
  let first_head = (group_id.y * THREADS + thread) * 4u;
  let row = group_id.z;
  let info = row_info[row];
  if (info.x == INACTIVE || first_head >= params.heads) {
    return;
  }
  let chunk = own_chunk(info.y, group_id.x);
  if (chunk * CHUNK > info.x) {
    return;
  }
  let limit = info.x + 1u;
  // A head beyond the last computes the last again, and isn't written.
  let heads = min(vec4<u32>(first_head) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.heads - 1u));
  let queries = Queries(
    query_units(row, params.q_units, heads, params.key_units),
    partials_at(heads, group_id.x) + vec4<u32>(row * params.row_stride),
    min(4u, params.heads - first_head),
    limit,
  );
  let end = min(limit, (chunk + 1u) * CHUNK);
  mla_attend(queries, info.y * params.table_stride, chunk, limit, end, thread);
  if (FINISHES) {
    for (var i = 0u; i < queries.heads; i++) {
      let ml = partial_ml[queries.to[i]];
      for (var unit = 0u; unit < params.rank_units; unit++) {
        let at = queries.to[i] * params.rank_units + unit;
        partial_o[at] = softmax_finish(SoftmaxState(partial_o[at], ml.x, ml.y));
      }
    }
  }
}
