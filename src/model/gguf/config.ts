/**
 * Room: a model from a GGUF file's metadata: the keys of config.json by other names, tensors by other names, rows of q
 * and k in another order. Read tensors.ts next.
 */

import { formatError, unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { entryOf, type GgufFile, type Source, TensorReader } from '../../loader/index.js';
import { isRecurrent, type LayerConfig, type ModelConfig } from '../config/model_config.js';
import { countRange, furtherRange } from '../families/common_keys.js';
import type { FamilyGguf } from '../families/family.js';
import { ggufFamily, notKnown, readModelConfig, supportedGguf } from '../families/registry.js';
import { GgufMetadata } from '../config/config_reader.js';
import { latentScale, type RopeScaling, yarnMscale } from '../config/rope_config.js';
import type { DeltaNames, GatedMlpNames, TensorNames } from '../config/tensor_names.js';

const positions = { min: 1, max: 2 ** 30 };

export interface GgufArchitecture {
  /** `general.architecture` */
  readonly arch: string;
  readonly family: FamilyGguf;
}

/** Throws `unsupported` for an architecture that isn't known, and for files that hold no language model. */
export async function ggufArchitecture({ metadata, what }: GgufFile): Promise<GgufArchitecture> {
  const kind = metadata.get('general.type') ?? 'model';
  if (kind !== 'model') throw unsupportedError(`${what}: general.type is ${show(kind)}; expected a 'model'`);
  const arch = metadata.get('general.architecture');
  if (typeof arch !== 'string')
    throw formatError(`${what}: general.architecture is ${show(arch ?? null)}; expected a name`);
  const family = await ggufFamily(arch);
  if (family) return { arch, family };
  throw unsupportedError(
    `${what}: general.architecture '${arch}' is not supported; ${notKnown(arch, supportedGguf())}`,
  );
}

/**
 * The configuration that a GGUF file's metadata and tensors say, as config.json would.
 *
 * @param generation special token ids, as in generation_config.json
 * @throws SplitkvError `config` for a missing key or an impossible value, `unsupported`, `format`
 */
export async function ggufConfig(
  source: Source,
  gguf: GgufFile,
  generation: unknown,
  signal?: AbortSignal,
): Promise<ModelConfig> {
  const { arch, family } = await ggufArchitecture(gguf);
  const metadata = new GgufMetadata(gguf, arch);
  const embedding = gguf.tensors.get('token_embd.weight');
  if (!embedding) throw formatError(`${gguf.what} has no tensor 'token_embd.weight'; expected a whole model`);
  const own: Record<string, unknown> = family.keys(metadata, gguf);
  const further = metadata.optionalInteger('nextn_predict_layers', furtherRange) ?? 0;
  const keys = {
    hidden_size: metadata.integer('embedding_length'),
    num_hidden_layers: metadata.integer('block_count', countRange) - further,
    num_nextn_predict_layers: further,
    num_attention_heads: metadata.integer('attention.head_count', countRange),
    // Where all layers have experts, a file needn't say.
    intermediate_size:
      own['intermediate_size'] ??
      (metadata.optionalInteger('expert_count', countRange)
        ? metadata.optionalInteger('feed_forward_length')
        : metadata.integer('feed_forward_length')),
    vocab_size: embedding.shape[0],
    max_position_embeddings: metadata.integer('context_length', positions),
    rms_norm_eps:
      metadata.optionalPositive('attention.layer_norm_epsilon') ??
      metadata.positive('attention.layer_norm_rms_epsilon'),
    rope_theta: metadata.optionalPositive('rope.freq_base') ?? 10000,
    tie_word_embeddings: !gguf.tensors.has('output.weight'),
    ...own,
  };
  refuseVariants(metadata, keys.max_position_embeddings);
  const config = await readModelConfig(keys, generation, gguf.what);
  const yarnScalesSoftmax = family.yarnScalesSoftmax?.includes(arch) ?? false;
  const all: LayerConfig[] = [];
  let scaling: { readonly dims: number; readonly is: RopeScaling } | undefined;
  for (const layer of [...config.layers, ...(config.mtp ? [config.mtp.layer] : [])]) {
    const { attention } = layer;
    const plain = attention.kind === 'gqa' && attention.window !== undefined && family.plainWindows?.includes(arch);
    const dims = plain ? undefined : ropeDims(layer);
    if (dims !== undefined && scaling?.dims !== dims) {
      const stored = await ggufRopeScaling(source, gguf, metadata, dims, yarnScalesSoftmax, signal);
      const unrounded = stored?.type === 'yarn' && family.unroundedYarn?.includes(arch);
      scaling = { dims, is: unrounded ? { ...stored, truncate: false } : stored };
    }
    all.push(asInFile(layer, gguf, plain ? null : (scaling?.is ?? null)));
  }
  // Where norms multiply by 1 + w, a file has the sum.
  const { offset: _, ...norm } = config.norm;
  const plain = { ...config, norm };
  const packed = all.some(({ mlp }) => mlp.kind === 'experts') && hasPackedExperts(gguf);
  const layers = packed ? all.map(asPacked) : all;
  const mtp = plain.mtp && { ...plain.mtp, layer: layers.pop()! };
  return { ...plain, layers, tensors: namesInFile(plain.tensors, gguf), mtp };
}

/** Files have q, k, v and z of linear attention apart, but for old ones; and gate and up of an MLP, where they have a gate. */
function namesInFile(tensors: TensorNames, gguf: GgufFile): TensorNames {
  const has = (part: string): boolean => [...gguf.tensors.keys()].some((name) => name.endsWith(`.${part}.weight`));
  const apart = <T extends GatedMlpNames>({ gateUp, ...names }: T, part: string) =>
    gateUp === undefined || has(part) ? names : { ...names, gateUp };
  const { gated, delta, experts } = tensors;
  const { qkvz, ...others } = delta ?? {};
  return {
    ...tensors,
    ...(gated && { gated: apart(gated, 'ffn_gate') }),
    ...(experts && { experts: { ...experts, shared: apart(experts.shared, 'ffn_gate_shexp') } }),
    ...(delta && qkvz !== undefined && !has('ssm_in') && { delta: others as DeltaNames }),
  };
}

/** All of the experts' matrices are MXFP4; experts of all layers are kept alike. */
const hasPackedExperts = ({ tensors }: GgufFile): boolean =>
  [...tensors.values()].every(
    ({ name, type }) => type === 'MXFP4' || !/\.ffn_(gate|up|gate_up|down)_exps\.weight$/.test(name),
  );

const asPacked = (layer: LayerConfig): LayerConfig =>
  layer.mlp.kind === 'experts' ? { ...layer, mlp: { ...layer.mlp, packed: 'mxfp4' } } : layer;

const ropeDims = ({ attention }: LayerConfig): number | undefined =>
  isRecurrent(attention) ? undefined : attention.rope?.dims;

/** What config.json says in keys and a GGUF file by its tensors: biases, and the stretch of rotary frequencies. */
function asInFile(layer: LayerConfig, gguf: GgufFile, scaling: RopeScaling): LayerConfig {
  const { attention, mlp } = layer;
  if (attention.kind === 'mla') {
    const scale = latentScale(attention.qkNopeHeadDim + attention.qkRopeHeadDim, scaling);
    return { ...layer, attention: { ...attention, rope: { ...attention.rope, scaling }, scale } };
  }
  if (attention.kind === 'delta' || attention.kind === 'mamba')
    return { ...layer, attention: { ...attention, rates: 'negative' } };
  if (attention.kind !== 'gqa') return layer;
  const has = (part: string): boolean => gguf.tensors.has(`blk.0.${part}.bias`);
  const bias = { q: has('attn_q'), k: has('attn_k'), v: has('attn_v'), o: has('attn_output') };
  return {
    ...layer,
    attention: { ...attention, bias, rope: attention.rope && { ...attention.rope, scaling } },
    mlp: mlp.kind === 'experts' ? mlp : { ...mlp, bias: has(mlp.kind === 'gated' ? 'ffn_gate' : 'ffn_up') },
  };
}

const scales = ['attention.temperature_scale', 'attention.scale', 'logit_scale', 'embedding_scale', 'residual_scale'];

/** Keys by which relatives of a family change the computation: the family didn't ask for them. */
function refuseVariants(metadata: GgufMetadata, contextLength: number): void {
  const asked = [...scales, 'attention.sliding_window'].filter((name) => metadata.asked(name));
  const window = metadata.optionalInteger('attention.sliding_window', { min: 0, max: 2 ** 30 }) ?? 0;
  if (window > 0 && window < contextLength && !asked.includes('attention.sliding_window'))
    throw metadata.unsupported('attention.sliding_window', window, `attention sees all ${contextLength} positions`);
  for (const name of scales.filter((one) => !asked.includes(one))) {
    const scale = metadata.optionalPositive(name) ?? 1;
    if (scale !== 1) throw metadata.unsupported(name, scale, 'these models have no such scale');
  }
}

/**
 * How a GGUF file stretches rotary frequencies: `rope.scaling.*`, and the divisors of each frequency in rope_freqs (how llama3's
 * scaling is stored) or rope_factors_long and _short.
 *
 * @param dims rotated dimensions of a head
 * @param latent llama.cpp's deepseek2: the logarithm of the factor scales the softmax instead of cos and sin
 */
async function ggufRopeScaling(
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
