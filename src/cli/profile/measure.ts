/**
 * Room: `splitkv profile`: what each kv head keeps of sample prompts, as a table, JSON and a heat map. story.ts makes
 * the prompts.
 */

import { usageError } from '../../base/errors.js';
import type { Profile } from '../../index.js';
import type { Terminal } from '../command.js';
import type { ModelHost } from '../hosts/model_host.js';

/** A profile and how it was measured; other tools read `model`, `kv_budget` and `layers`. */
export interface MeasuredProfile extends Profile {
  /** [layer][kv head]: standard deviation of the kept entries over the samples. */
  readonly std: readonly (readonly number[])[];
  /** [layer][kv head]: kept entries of a sample as a part of its tokens, mean and standard deviation. */
  readonly share: readonly (readonly number[])[];
  readonly share_std: readonly (readonly number[])[];
  readonly policy: 'ada' | 'snap';
  readonly samples: number;
  /** Tokens of the samples: mean, fewest, most. */
  readonly prompt_tokens: { readonly mean: number; readonly least: number; readonly most: number };
}

/**
 * What each kv head keeps of the samples, by a model that compresses.
 * @throws SplitkvError `usage` when no sample is longer than what is kept: then there is nothing to measure
 */
export async function measureProfile(
  host: Pick<ModelHost, 'info' | 'kept'>,
  samples: readonly (string | readonly number[])[],
  { budget, policy }: { readonly budget: number; readonly policy: 'ada' | 'snap' },
  terminal: Pick<Terminal, 'progress'>,
): Promise<MeasuredProfile> {
  const kept: { readonly promptTokens: number; readonly layers: readonly (readonly number[])[] }[] = [];
  for (const [index, sample] of samples.entries()) {
    terminal.progress(`profile: sample ${index + 1} of ${samples.length}`);
    kept.push(await host.kept(sample));
  }
  const lengths = kept.map(({ promptTokens }) => promptTokens);
  if (kept.every(({ promptTokens, layers }) => layers.flat().every((entries) => entries === promptTokens))) {
    throw usageError(
      `nothing of ${samples.length === 1 ? 'the sample' : `the ${samples.length} samples`} was evicted: they have up to ${Math.max(...lengths)} tokens, ` +
        'and so many are kept; give longer ones, a smaller budget or a smaller window',
    );
  }
  const over = (of: (sample: (typeof kept)[number], layer: number, head: number) => number) =>
    kept[0]!.layers.map((heads, layer) =>
      heads.map((_, head) => spread(kept.map((sample) => of(sample, layer, head)))),
    );
  const entries = over(({ layers }, layer, head) => layers[layer]![head]!);
  const shares = over(({ layers, promptTokens }, layer, head) => layers[layer]![head]! / promptTokens);
  const part = (of: typeof entries, name: 'mean' | 'std'): number[][] =>
    of.map((heads) => heads.map((head) => Number(head[name].toPrecision(6))));
  return {
    model: host.info.name,
    kv_budget: budget,
    policy,
    layers: part(entries, 'mean'),
    std: part(entries, 'std'),
    share: part(shares, 'mean'),
    share_std: part(shares, 'std'),
    samples: samples.length,
    prompt_tokens: {
      mean: Number(spread(lengths).mean.toPrecision(6)),
      least: Math.min(...lengths),
      most: Math.max(...lengths),
    },
  };
}

/** Of a population. */
function spread(values: readonly number[]): { readonly mean: number; readonly std: number } {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return { mean, std: Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length) };
}
