import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { readControls } from '../adjust_logits/reference.js';
import { readSlotParams } from '../argmax_partial/reference.js';
import { type SamplingProblem } from '../params.js';

/** f32 may fall on the other side of an edge this near, relative to it. */
const EDGE = 1e-5;

/** Logits where tokens below min_p times the likeliest are -1e30; of those too near to tell, undefined. */
export function minPReference({ slots, vocab, stride }: SamplingProblem, inputs: HostArrays): Expected {
  const adjusted: (number | undefined)[] = new Array(slots * stride);
  for (let slot = 0; slot < slots; slot++) {
    const { isOn, reach } = readControls(inputs['controls']!, slot);
    const { temperature, active } = readSlotParams(inputs['sampling']!, slot);
    const row = Array.from(inputs['adjusted']!.subarray(slot * stride, slot * stride + vocab));
    const finite = row.map((logit) => (Number.isNaN(logit) ? -1e30 : Math.min(1e30, Math.max(-1e30, logit))));
    const best = finite.reduce((most, logit) => Math.max(most, logit));
    for (const [id, logit] of finite.entries()) {
      const drops = isOn && active && temperature >= 1e-5;
      // ln(p / largest p)
      const below = (best - logit) / temperature;
      const isNear = Math.abs(below - reach) <= EDGE * Math.max(1, reach) && below !== 0;
      if (drops && isNear) continue;
      const after = drops && below > reach ? Math.fround(-1e30) : row[id]!;
      // NaN and infinities, which stay, can't be compared.
      adjusted[slot * stride + id] = Number.isFinite(after) ? after : undefined;
    }
  }
  return { adjusted: adjusted as number[] };
}
