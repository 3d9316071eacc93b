import type { MeasuredProfile } from '../../engine/measure/measure_profile.js';

/** Mean kept entries and their spread, a row per layer. */
export function profileTable({
  layers,
  std,
  kv_budget: budget,
  samples,
  prompt_tokens: tokens,
}: MeasuredProfile): string {
  const cells = layers.map((heads, layer) =>
    heads.map((mean, head) => `${mean.toFixed(0)} ±${std[layer]![head]!.toFixed(0)}`),
  );
  const width = Math.max(8, ...cells.flat().map(({ length }) => length)) + 2;
  const line = (name: string, columns: readonly string[]): string =>
    name.padEnd(7) + columns.map((column) => column.padStart(width)).join('');
  const count = `${samples} sample${samples === 1 ? '' : 's'} of ${tokens.least === tokens.most ? tokens.most : `${tokens.least} to ${tokens.most}`} tokens`;
  return [
    `kept entries of ${count} at a KV budget of ${budget}: mean ± standard deviation`,
    line(
      'layer',
      layers[0]!.map((_, head) => `head ${head}`),
    ),
    ...cells.map((columns, layer) => line(String(layer), columns)),
    '',
  ].join('\n');
}
