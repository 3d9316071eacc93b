/**
 * Room: `splitkv profile`: what each kv head keeps of sample prompts as a table (here) and a heat map. The measurement is in
 * engine/measure/measure_profile.ts.
 */

import { alignedTable } from '../../base/aligned_table.js';
import type { MeasuredProfile } from '../../engine/measure/measure_profile.js';

/** Mean kept entries and their spread, a row per layer. */
export function profileTable({
  layers,
  std,
  kv_budget: budget,
  samples,
  prompt_tokens: tokens,
}: MeasuredProfile): string {
  const rows = layers.map((heads, layer) => [
    String(layer),
    ...heads.map((mean, head) => `${mean.toFixed(0)} ±${std[layer]![head]!.toFixed(0)}`),
  ]);
  const count = `${samples} sample${samples === 1 ? '' : 's'} of ${tokens.least === tokens.most ? tokens.most : `${tokens.least} to ${tokens.most}`} tokens`;
  const heads = rows[0]!.slice(1).map((_, head) => `head ${head}`);
  return `kept entries of ${count} at a KV budget of ${budget}: mean ± standard deviation\n${alignedTable([['layer', ...heads], ...rows], 1)}`;
}
