import { type GgufFile, entryOf, type Source, TensorReader } from '../../loader/index.js';
import type { GgufMetadata } from './metadata.js';
import { type RopeScaling, yarnMscale } from '../config/rope_config.js';

const positions = { min: 1, max: 2 ** 30 };

/**
 * How a GGUF file stretches rotary frequencies: `rope.scaling.*`, and the divisors of each frequency in rope_freqs (how llama3's
 * scaling is stored) or rope_factors_long and _short.
 *
 * @param dims rotated dimensions of a head
 * @param latent llama.cpp's deepseek2: the logarithm of the factor scales the softmax instead of cos and sin
 */
export async function ggufRopeScaling(
  source: Source,
  gguf: GgufFile,
  metadata: GgufMetadata,
  dims: number,
  latent: boolean,
  signal: AbortSignal | undefined,
): Promise<RopeScaling> {
  const read = async (part: string): Promise<number[] | undefined> => {
    const name = `${part}.weight`;
    const tensor = gguf.tensors.get(name);
    if (!tensor) return undefined;
    const tensors = new Map([[name, entryOf(tensor)]]);
    const reader = new TensorReader(source, { tensors, totalBytes: 0, files: gguf.files });
    reader.expectTensor(name, [dims / 2]);
    return [...(await reader.readVector(name, { signal }))];
  };
  const type = metadata.optionalString('rope.scaling.type') ?? 'linear';
  const stated =
    metadata.optionalPositive('rope.scaling.factor') ?? metadata.optionalPositive('rope.scale_linear') ?? 1;
  const factor = type === 'none' ? 1 : stated;
  const originalMaxPositions =
    metadata.optionalInteger('rope.scaling.original_context_length', positions) ??
    metadata.integer('context_length', positions);
  // `yarn_attn_factor` isn't another one: writers of files put YaRN's own there, which follows from its factor.
  const attention = metadata.optionalPositive('rope.scaling.attn_factor') ?? 1;
  switch (type) {
    case 'none':
    case 'linear':
    case 'longrope': {
      const divisors = latent ? undefined : await readBoth(read);
      if (divisors) {
        const [shortFactor, longFactor] = divisors;
        const times = (list: readonly number[]): number[] => list.map((divisor) => divisor * factor);
        const lists = { shortFactor: times(shortFactor), longFactor: times(longFactor) };
        return { type: 'longrope', ...lists, originalMaxPositions, attentionFactor: attention };
      }
      if (type === 'longrope')
        throw metadata.unsupported('rope.scaling.type', type, 'expected the tensors rope_factors_short and _long');
      if (attention !== 1)
        throw metadata.unsupported('rope.scaling.attn_factor', attention, 'expected YaRN or LongRoPE with it');
      return factor === 1 ? null : { type: 'linear', factor };
    }
    case 'yarn': {
      const extrapolation = metadata.optionalPositive('rope.scaling.yarn_ext_factor') ?? 1;
      if (extrapolation !== 1)
        throw metadata.unsupported('rope.scaling.yarn_ext_factor', extrapolation, 'YaRN must be whole (1)');
      const allDim = metadata.optionalPositive('rope.scaling.yarn_log_multiplier') ?? 0;
      if (latent && attention !== 1)
        throw metadata.unsupported('rope.scaling.attn_factor', attention, 'latent attention has 1');
      return {
        type,
        factor,
        originalMaxPositions,
        betaFast: metadata.optionalPositive('rope.scaling.yarn_beta_fast') ?? 32,
        betaSlow: metadata.optionalPositive('rope.scaling.yarn_beta_slow') ?? 1,
        // Of deepseek2 written as 0.1 mscale_all_dim, by which the logarithm is multiplied.
        mscaleAllDim: latent ? allDim * 10 : allDim,
        attentionFactor: latent ? 1 : (attention * yarnMscale(factor, 1)) / yarnMscale(factor, allDim),
      };
    }
    default:
      throw metadata.unsupported('rope.scaling.type', type, "supported are 'none', 'linear', 'yarn' and 'longrope'");
  }
}

/** Divisors within the trained context and beyond it, whatever the metadata calls it: as in llama.cpp the tensors decide. */
async function readBoth(
  read: (part: string) => Promise<number[] | undefined>,
): Promise<[number[], number[]] | undefined> {
  const always = await read('rope_freqs');
  if (always) return [always, always];
  const [short, long] = [await read('rope_factors_short'), await read('rope_factors_long')];
  return short && long ? [short, long] : undefined;
}
