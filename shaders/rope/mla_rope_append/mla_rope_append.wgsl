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
const KEEP_LATENTS: bool = false; // variant
const READY: bool = false; // variant

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

// First of pairs 4 * unit .. 4 * unit + 3 of a position in rope_table.
fn first_pair(position: u32, unit: u32) -> u32 {
  return position * (params.rope_units * 2u) + unit * 4u;
}

// The staged token, into the cache. Call in uniform control flow.
fn append_staged(to: u32, units: u32, thread: u32) {
  workgroupBarrier();
  var unit = thread;
  for (var left = steps(thread, kv_stored_units(units), THREADS); left > 0u; left--) {
    latent_cache[to + unit * BLOCK] = kv_staged_unit(0u, units, unit);
    unit += THREADS;
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = group_id.y;
  let position = row_info[row].x;
  if (position == INACTIVE) {
    return;
  }
  let rank_units = params.rank / 4u;
  let half_units = params.rope_units / 2u;

  if (group_id.x > 0u) {
    let item = (group_id.x - 1u) * THREADS + thread;
    let head = item / half_units;
    let unit = item % half_units;
    if (head < params.heads) {
      let begin = row * params.q_units + params.q_start + head * (params.nope_units + params.rope_units) + params.nope_units;
      let rotated = rotate(q[begin + unit], q[begin + half_units + unit], first_pair(position, unit));
      let to = row * params.q_abs_units + head * (rank_units + params.rope_units) + rank_units;
      q_abs[to + unit] = rotated.low;
      q_abs[to + half_units + unit] = rotated.high;
    }
    return;
  }

  let physical = block_table[row_info[row].y * params.table_stride + position / BLOCK];
  let appends = physical != NO_BLOCK;
  if (!appends && !KEEP_LATENTS) {
    return;
  }
  let start = row * params.kv_units + params.kv_start;
  let units = rank_units + params.rope_units;
  let to = latent_base(physical, units, position % BLOCK);
  if (READY) {
    var unit = thread;
    for (var left = steps(thread, units, THREADS); left > 0u; left--) {
      if (KV_SCALED) {
        kv_staged[unit] = kv_a[start + unit];
      } else {
        latent_cache[to + unit * BLOCK] = kv_pack(kv_a[start + unit], 1.0);
      }
      unit += THREADS;
    }
    if (KV_SCALED) {
      append_staged(to, units, thread);
    }
    return;
  }
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own > 0u; own--) {
    var partial = 0.0;
    var k4 = j;
    for (var left = steps(j, rank_units, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, kv_a[start + k4]);
      k4 += RMS_PARTIALS;
    }
    rms_partials[j] = partial;
    j += THREADS;
  }
  workgroupBarrier();
  let scale = rms_scale(f32(params.rank), params.eps);
  let kept = row * params.q_abs_units + params.heads * units;
  var unit = thread;
  for (var left = steps(thread, rank_units, THREADS); left > 0u; left--) {
    let latent = rms_apply(kv_a[start + unit], scale, norm_weight[unit]);
    if (KEEP_LATENTS) {
      q_abs[kept + unit] = latent;
    }
    if (KV_SCALED) {
      kv_staged[unit] = latent;
    } else if (appends) {
      latent_cache[to + unit * BLOCK] = kv_pack(latent, 1.0);
    }
    unit += THREADS;
  }
  let key = start + rank_units;
  unit = thread;
  for (var left = steps(thread, half_units, THREADS); left > 0u; left--) {
    let rotated = rotate(kv_a[key + unit], kv_a[key + half_units + unit], first_pair(position, unit));
    if (KEEP_LATENTS) {
      q_abs[kept + rank_units + unit] = rotated.low;
      q_abs[kept + rank_units + half_units + unit] = rotated.high;
    }
    if (KV_SCALED) {
      kv_staged[rank_units + unit] = rotated.low;
      kv_staged[rank_units + half_units + unit] = rotated.high;
    } else if (appends) {
      latent_cache[to + (rank_units + unit) * BLOCK] = kv_pack(rotated.low, 1.0);
      latent_cache[to + (rank_units + half_units + unit) * BLOCK] = kv_pack(rotated.high, 1.0);
    }
    unit += THREADS;
  }
  if (KV_SCALED && appends) {
    append_staged(to, units, thread);
  }
}
