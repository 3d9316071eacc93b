// MLA before attention, in one: each head's query into the latent space by its matrix (linear_grouped), and beside it the rotation of
// q_pe and k_pe, the norm of the latent, and the append (mla_rope_append). For hardware adapters; the same bits as those two, which
// need nothing of each other.
//
//   q_abs[h][n]    = sum_k W[h][n][k] q[h][k]             k < nope, n < R
//   q_abs[h][R..)  = rope(q[h][nope..)),   cache token = (rms_norm(kv_a[0..R)) * norm_weight, rope(kv_a[R..)))
//
// q            [rows][q_units*4] f32; head h at 4 (q_start + h (nope_units + rope_units)): nope elements, then rope
// kv_a         [rows][kv_units*4] f32; from 4 kv_start: latent (R), then k_pe (rope)
// weight       packed tiles of 32 output rows (linear/pack.ts), 16-byte units; head h starts at tile h * (tiles of a head)
// scale        f16 scales of q8 and q4
// norm_weight  [R] f32
// rope_table   [position][d/2] (cos, sin) f32
// row_info     [rows] (position, slot); position INACTIVE: the row isn't rotated nor appended
// block_table  [slot][table_stride] physical block of each BLOCK tokens
// latent_cache see latent_layout.wgsl, KvUnit
// out          q_abs [rows][q_abs_units*4] f32; head h at h (R + d)
//
// Grid: x = OUTS outputs (contract.wgsl), y = head, z = row; behind the heads, as many y as there must be, workgroups x of which
// `extra` rotate and append (mla_token.wgsl).

const MASKED: bool = false; // variant

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv_a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scale: array<u32>;
@group(0) @binding(4) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> rope_table: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(7) var<storage, read> block_table: array<u32>;
@group(0) @binding(8) var<storage, read_write> latent_cache: array<KvUnit>;
@group(0) @binding(9) var<storage, read_write> out: array<f32>;

struct Params {
  rows: u32,
  out_features: u32,
  units: u32,
  tile_units: u32,
  out_stride: u32,
  out_offset: u32,
  out_group: u32,
  extra: u32,
  heads: u32,
  rank: u32,
  rope_units: u32,
  nope_units: u32,
  q_units: u32,
  q_start: u32,
  kv_units: u32,
  kv_start: u32,
  q_abs_units: u32,
  table_stride: u32,
  eps: f32,
}
@group(0) @binding(10) var<uniform> params: Params;

// The head's slice in row 0, in vec4s.
var<private> slice_start4: u32 = 0u;

fn load_x(row: u32, k4: u32) -> vec4<f32> {
  if (MASKED && k4 >= params.nope_units) {
    return vec4<f32>();
  }
  return q[row * params.q_units + slice_start4 + k4];
}

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {}

@compute @workgroup_size(LANES, SLICES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  if (group.y >= params.heads) {
    let job = (group.y - params.heads) * groups.x + group.x;
    if (job < params.extra) {
      rope_and_append(job, group.z, thread);
    }
    return;
  }
  slice_start4 = params.q_start + group.y * (params.nope_units + params.rope_units);
  group_outputs(group, local, thread);
}
