/**
 * Room: a model from a GGUF file's metadata: the keys of config.json by other names, tensors by other names, rows of q
 * and k in another order. Read metadata.ts next.
 */

import { formatError, unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import type { GgufFile, Source } from '../../loader/index.js';
import { isRecurrent, type LayerConfig, type ModelConfig } from '../config/model_config.js';
import { countRange } from '../families/common_keys.js';
import type { FamilyGguf } from '../families/family.js';
import { ggufFamily, notKnown, readModelConfig, supportedGguf } from '../families/registry.js';
import { GgufMetadata } from './metadata.js';
import { ggufRopeScaling } from './rope.js';
import { latentScale, type RopeScaling } from '../config/rope_config.js';
import type { TensorNames } from '../config/tensor_names.js';

const positions = { min: 1, max: 2 ** 30 };

/** A GGUF file's architecture, as its family knows it. */
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
  const keys = {
    hidden_size: metadata.integer('embedding_length'),
    num_hidden_layers:
      metadata.integer('block_count', countRange) -
      (metadata.optionalInteger('nextn_predict_layers', { min: 0, max: 64 }) ?? 0),
    num_attention_heads: metadata.integer('attention.head_count', countRange),
    // Where all layers have experts, a file needn't say.
    intermediate_size: metadata.optionalInteger('expert_count', countRange)
      ? metadata.optionalInteger('feed_forward_length')
      : metadata.integer('feed_forward_length'),
    vocab_size: embedding.shape[0],
    max_position_embeddings: metadata.integer('context_length', positions),
    rms_norm_eps:
      metadata.optionalPositive('attention.layer_norm_epsilon') ??
      metadata.positive('attention.layer_norm_rms_epsilon'),
    rope_theta: metadata.optionalPositive('rope.freq_base') ?? 10000,
    tie_word_embeddings: !gguf.tensors.has('output.weight'),
    ...family.keys(metadata, gguf),
  };
  refuseVariants(metadata, keys.max_position_embeddings);
  const config = await readModelConfig(keys, generation, gguf.what);
  const yarnScalesSoftmax = family.yarnScalesSoftmax?.includes(arch) ?? false;
  const layers: LayerConfig[] = [];
  let scaling: { readonly dims: number; readonly is: RopeScaling } | undefined;
  for (const layer of config.layers) {
    const dims = ropeDims(layer);
    if (dims !== undefined && scaling?.dims !== dims) {
      const stored = await ggufRopeScaling(source, gguf, metadata, dims, yarnScalesSoftmax, signal);
      const unrounded = stored?.type === 'yarn' && family.unroundedYarn?.includes(arch);
      scaling = { dims, is: unrounded ? { ...stored, truncate: false } : stored };
    }
    const { attention } = layer;
    const plain = attention.kind === 'gqa' && attention.window !== undefined && family.plainWindows?.includes(arch);
    layers.push(asInFile(layer, gguf, plain ? null : (scaling?.is ?? null)));
  }
  // Where norms multiply by 1 + w, a file has the sum.
  const { offset: _, ...norm } = config.norm;
  const plain = { ...config, norm };
  const packed = layers.some(({ mlp }) => mlp.kind === 'experts') && hasPackedExperts(gguf);
  return { ...plain, layers: packed ? layers.map(asPacked) : layers, tensors: namesInFile(plain.tensors, gguf) };
}

/** Files have q, k, v and z of linear attention apart, but for old ones. */
function namesInFile(tensors: TensorNames, gguf: GgufFile): TensorNames {
  if (tensors.delta?.qkvz === undefined || [...gguf.tensors.keys()].some((name) => name.endsWith('.ssm_in.weight')))
    return tensors;
  const { qkvz: _, ...delta } = tensors.delta;
  return { ...tensors, delta };
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
  if (attention.kind === 'delta') return { ...layer, attention: { ...attention, rates: 'negative' } };
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
