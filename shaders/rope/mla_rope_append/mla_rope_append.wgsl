// MLA: RMS norm of the latent, RoPE of k_pe and of each head's q_pe, and the append to the paged latent cache.
//
//   c = rms_norm(kv_a[0..R)) * norm_weight                          (lib/rms.wgsl), before caching
//   rope(y)[i]       = y[i] cos(i) - y[i + d/2] sin(i)
//   rope(y)[i + d/2] = y[i + d/2] cos(i) + y[i] sin(i)              i < d/2, half-split pairs, d = 4 rope_units
//   cache token = (c, rope(kv_a[R..R+d)));   q_abs[head][R..R+d) = rope(q[head][nope..nope+d))
//
// Where a rank without weights keeps the rows' cache, the rank that has them puts the token behind its heads' q_abs too (KEEP_LATENTS),
// the rows travel, and there it is appended as it is (READY: kv_a holds it; q_abs isn't touched).
//
// q            [rows][q_units*4] f32; head h at 4 (q_start + h (nope_units + rope_units)): nope elements, then rope
// kv_a         [rows][kv_units*4] f32; from 4 kv_start: latent (R), then k_pe (rope)
// norm_weight  [R] f32
// rope_table   [position][d/2] (cos, sin) f32
// row_info     [rows] (position, slot); position INACTIVE: the row is skipped
// block_table  [slot][table_stride] physical block of each BLOCK tokens; NO_BLOCK: the row's token is of another rank's cache
// latent_cache see latent_layout.wgsl, KvUnit
// q_abs        [rows][q_abs_units*4] f32; head h at h (R + d); only its last d elements are written. KEEP_LATENTS: the token at
//              heads (R + d)
//
// Grid (1 + ceil(heads * rope_units/2 / THREADS), rows, 1): workgroup 0 of a row = latent and k_pe; in the others a thread
// rotates 4 pairs of one head; READY: workgroup 0 alone. THREADS: 8 for software adapters, 64 for GPUs; changes no bit.
// Into a cache with scales (kv_q8.wgsl) a token goes by way of workgroup memory (kv_stage.wgsl).
// Inactive rows: nothing is read or written. Rows without a block: only q_abs is.
const THREADS: u32 = 64; // variant

struct Params {
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

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kv_a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> rope_table: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> block_table: array<u32>;
@group(0) @binding(6) var<storage, read_write> latent_cache: array<KvUnit>;
@group(0) @binding(7) var<storage, read_write> q_abs: array<vec4<f32>>;
@group(0) @binding(8) var<uniform> params: Params;

fn write_q_abs(unit: u32, value: vec4<f32>) {
  q_abs[unit] = value;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  rope_and_append(group_id.x, group_id.y, thread);
}
