import type { LoadOptions, WeightType } from '../contracts/api.js';
import type { ModelRanks } from './rank_group.js';

/** Tells where precision 'fast' changes nothing. */
export function warnOfExact(
  type: WeightType,
  { runner: { ranks }, adapter }: ModelRanks,
  onWarning: LoadOptions['onWarning'],
): void {
  const variants = ranks.flatMap(({ facts }) => Object.values(facts.variants));
  if (variants.some((variant) => variant.includes(','))) return;
  const why =
    type === 'f32'
      ? 'f32 weights are never rounded'
      : adapter.variants === 'software'
        ? 'kernels for the CPU have no faster form'
        : 'its ranks have neither matrix units nor packed products of bytes nor f16 in shaders in common, or compute wrongly with them';
  onWarning?.(`precision 'fast': prompts are computed exactly all the same: ${why}`);
}
