// Split-KV attention of generated rows over the latent: the softmax state of one 256-token chunk of this rank, 4 QUADS heads of a
// row a workgroup, which read the latent together; the workgroups of a chunk follow each other, and find it in a cache.
//
//   s_t = scale * q_abs[h] . (c_t, k_pe_t),   m = max s_t,   l = sum exp(s_t - m),   o = sum exp(s_t - m) c_t
//   t in the chunk, t <= position
//
// q_abs        [rows][q_units*4] f32, head h at h * 4 key_units: W_UK^T q_nope (R), then rotated q_pe (rope); or in pieces
//              (query_pieces.wgsl)
// latent_cache see latent_layout.wgsl, KvUnit
// row_info     [rows] (position, slot)
// block_table  [slot][table_stride] physical block of each BLOCK tokens; only blocks of the chunk's tokens <= position are read
// chunk_offsets [slots], see share.wgsl; read only where ranks share the sequences
// partial_o    [rows][heads][local chunks][R] f32, unnormalised; local chunks: those that there is room for; R = 4 rank_units
// partial_ml   [rows][heads][local chunks] (m, l) f32, natural log, scale applied
//
// Grid (local chunks, ceil(heads / (4 QUADS)), rows). Software adapters: mla_split_row.wgsl.
// Chunks beyond the row's tokens and inactive rows: nothing is written.

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
  let row = group_id.z;
  let info = row_info[row];
  if (info.x == INACTIVE) {
    return;
  }
  let chunk = own_chunk(info.y, group_id.x);
  if (chunk * CHUNK > info.x) {
    return;
  }
  let last = vec4<u32>(params.heads - 1u);
  let limit = info.x + 1u;
  var queries: Queries;
  for (var quad = 0u; quad < QUADS; quad++) {
    let heads = vec4<u32>((group_id.y * QUADS + quad) * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let targets = partials_at(heads, group_id.x) + vec4<u32>(row * params.row_stride);
    // A head beyond the last computes the last again, and isn't written.
    queries.at[quad] = query_units(row, params.q_units, min(heads, last), params.key_units);
    queries.limit[quad] = vec4<u32>(limit);
    queries.to[quad] = select(targets, vec4<u32>(NOWHERE), heads > last);
  }
  mla_attend(queries, info.y * params.table_stride, chunk, limit, min(limit, (chunk + 1u) * CHUNK), thread);
}
