// MLA's rotation and append of a row: what mla_rope_append, mla_absorb_append and mla_up_append have in common. Joined after
// latent_layout.wgsl, kv_stage.wgsl, rms.wgsl, steps.wgsl and rotate.wgsl. The kernel declares THREADS, the bindings rope_table,
// row_info, block_table and latent_cache, the params of mla_rope_append, fn load_q(row, head, unit), a unit of a head's query, fn
// load_kv(unit), of all latents and their keys, fn latent_weight(unit), of their norm, and fn write_q_abs(unit, value).
const KEEP_LATENTS: bool = false; // variant
const READY: bool = false; // variant

// First of pairs 4 * unit .. 4 * unit + 3 of a position in rope_table.
fn first_pair(position: u32, unit: u32) -> u32 {
  return position * (params.rope_units * 2u) + unit * 4u;
}

// A unit of the staged token as the cache has it.
fn staged_token_unit(rank_units: u32, unit: u32) -> KvUnit {
  let key = latent_key_unit(rank_units, 0u);
  if (unit >= key) {
    return kv_pack_wide(kv_staged[rank_units + (unit - key) / 2u], (unit - key) % 2u);
  }
  return kv_staged_unit(0u, rank_units, unit);
}

// The staged token, into the cache. Call in uniform control flow.
fn append_staged(to: u32, rank_units: u32, thread: u32) {
  workgroupBarrier();
  var unit = thread;
  for (var left = steps(thread, latent_key_unit(rank_units, params.rope_units), THREADS); left > 0u; left--) {
    latent_cache[to + unit * BLOCK] = staged_token_unit(rank_units, unit);
    unit += THREADS;
  }
}

// Pairs of units of a head's q_pe.
fn rotate_query(row: u32, head: u32, unit: u32, position: u32) {
  let half_units = params.rope_units / 2u;
  let pe = params.nope_units + unit;
  let rotated = rotate(load_q(row, head, pe), load_q(row, head, pe + half_units), first_pair(position, unit));
  let rank_units = params.rank / 4u;
  let to = row * params.q_abs_units + head * (rank_units + params.rope_units) + rank_units + unit;
  write_q_abs(to, rotated.low);
  write_q_abs(to + half_units, rotated.high);
}

// A workgroup of a row; number 0 has the latent and k_pe, the others share the pairs of units of q_pe. In uniform control flow.
fn rope_and_append(job: u32, row: u32, thread: u32) {
  let position = row_info[row].x;
  if (position == INACTIVE) {
    return;
  }
  let rank_units = params.rank / 4u;
  let half_units = params.rope_units / 2u;

  if (job > 0u) {
    let item = (job - 1u) * THREADS + thread;
    if (item / half_units < params.heads) {
      rotate_query(row, item / half_units, item % half_units, position);
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
  let to = latent_base(physical, rank_units, params.rope_units, position % BLOCK);
  if (READY) {
    var unit = thread;
    for (var left = steps(thread, units, THREADS); left > 0u; left--) {
      if (KV_SCALED) {
        kv_staged[unit] = load_kv(start + unit);
      } else {
        latent_cache[to + unit * BLOCK] = kv_pack(load_kv(start + unit), 1.0);
      }
      unit += THREADS;
    }
    if (KV_SCALED) {
      append_staged(to, rank_units, thread);
    }
    return;
  }
  var j = thread;
  for (var own = steps(thread, RMS_PARTIALS, THREADS); own > 0u; own--) {
    var partial = 0.0;
    var k4 = j;
    for (var left = steps(j, rank_units, RMS_PARTIALS); left > 0u; left--) {
      partial = rms_accumulate(partial, load_kv(start + k4));
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
    let latent = rms_apply(load_kv(start + unit), scale, latent_weight(unit));
    if (KEEP_LATENTS) {
      write_q_abs(kept + unit, latent);
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
    let rotated = rotate(load_kv(key + unit), load_kv(key + half_units + unit), first_pair(position, unit));
    if (KEEP_LATENTS) {
      write_q_abs(kept + rank_units + unit, rotated.low);
      write_q_abs(kept + rank_units + half_units + unit, rotated.high);
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
    append_staged(to, rank_units, thread);
  }
}
