import { usageError } from '../../base/errors.js';
import { nth, sum } from '../../base/lists.js';
import type { KvPolicy, Model, Profile } from '../contracts/api.js';

/** A profile and how it was measured; other tools read `model`, `kv_budget` and `layers`. */
export interface MeasuredProfile extends Profile {
  /** [layer][kv head]: standard deviation of the kept entries over the samples. */
  readonly std: readonly (readonly number[])[];
  /** [layer][kv head]: kept entries of a sample as a part of its tokens, mean and standard deviation. */
  readonly share: readonly (readonly number[])[];
  readonly share_std: readonly (readonly number[])[];
  readonly policy: KvPolicy;
  readonly samples: number;
  /** Tokens of the samples: mean, fewest, most. */
  readonly prompt_tokens: { readonly mean: number; readonly least: number; readonly most: number };
}

export interface ProfileOptions {
  readonly signal?: AbortSignal | undefined;
  /** Told which sample is next, for people. */
  readonly onProgress?: ((what: string) => void) | undefined;
}

/**
 * What each kv head keeps of the samples, by a model that compresses prompts (loaded with a `kvBudget`). Samples that aren't longer
 * than what is kept say nothing: give some that are as long as the prompts to come.
 * @param samples texts, or token ids, fed as they are
 * @throws SplitkvError `usage` for no samples, a model that doesn't compress, and samples that are all kept whole; as `Model.kept`
 */
export async function measureProfile(
  model: Pick<Model, 'kept'> & { readonly info: Pick<Model['info'], 'name' | 'compression'> },
  samples: readonly (string | readonly number[])[],
  { signal, onProgress }: ProfileOptions = {},
): Promise<MeasuredProfile> {
  const { name, compression } = model.info;
  if (!compression) {
    throw usageError('a profile is of what compression keeps: load the model with a kvBudget, such as 0.2');
  }
  if (samples.length === 0) throw usageError('a profile needs samples: give at least one prompt');
  const kept: { readonly promptTokens: number; readonly layers: readonly (readonly number[])[] }[] = [];
  for (const [index, sample] of samples.entries()) {
    onProgress?.(`profile: sample ${index + 1} of ${samples.length}`);
    kept.push(await model.kept(sample, signal && { signal }));
  }
  const lengths = kept.map(({ promptTokens }) => promptTokens);
  if (kept.every(({ promptTokens, layers }) => layers.flat().every((entries) => entries === promptTokens))) {
    throw usageError(
      `nothing of ${samples.length === 1 ? 'the sample' : `the ${samples.length} samples`} was evicted: they have up to ${Math.max(...lengths)} tokens, ` +
        'and so many are kept; give longer ones, a smaller budget or a smaller window',
    );
  }
  const over = (of: (sample: (typeof kept)[number], layer: number, head: number) => number) =>
    nth(kept, 0).layers.map((heads, layer) =>
      heads.map((_, head) => spread(kept.map((sample) => of(sample, layer, head)))),
    );
  const entries = over(({ layers }, layer, head) => nth(nth(layers, layer), head));
  const shares = over(({ layers, promptTokens }, layer, head) => nth(nth(layers, layer), head) / promptTokens);
  const part = (of: typeof entries, name: 'mean' | 'std'): number[][] =>
    of.map((heads) => heads.map((head) => Number(head[name].toPrecision(6))));
  return {
    model: name,
    kv_budget: compression.budget,
    policy: compression.policy,
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
  const mean = sum(values) / values.length;
  return { mean, std: Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / values.length) };
}
