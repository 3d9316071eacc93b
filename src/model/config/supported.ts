import { unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { MOST_HEAD_DIM } from '../../../shaders/cache/kv_cache.js';
import { MOST_KEY_DIM } from '../../../shaders/recurrent/shape.js';
import {
  type AttentionConfig,
  type GqaConfig,
  isRecurrent,
  type LayerConfig,
  type MlpConfig,
  type ModelConfig,
  type PagedAttention,
  type RecurrentConfig,
} from './model_config.js';

/** What a layer has, the words of its config.json for it, and what runs instead. */
type Fault = readonly [key: string, value: unknown, supported: string];

const fault = (...found: Fault): Fault => found;

/**
 * The one place that knows what of a `ModelConfig` runs.
 * @param file what messages call the source
 * @throws SplitkvError `unsupported` naming the key, the value, the layers and what is supported
 */
export function checkSupported(config: ModelConfig, file: string): void {
  const found = config.layers.map((layer) => layerFault(layer, config));
  const first = found.find((one) => one !== undefined);
  if (first) {
    const [key, value, supported] = first;
    const others = found.every((one) => one?.[0] === key) ? '' : ` of layer ${found.indexOf(first)}`;
    throw unsupportedError(`${file}: ${key} ${show(value)}${others} is not supported; ${supported}`);
  }
  checkAlike(config, file);
  if (config.layers.every(({ attention }) => isRecurrent(attention)))
    throw unsupportedError(`${file}: every layer is recurrent; that is not supported: some must have attention`);
}

function layerFault(layer: LayerConfig, config: ModelConfig): Fault | undefined {
  const { attention, mlp } = layer;
  const found = normsFault(layer, config) ?? behindFault(layer) ?? mlpFault(mlp);
  if (found) return found;
  if (isRecurrent(attention)) return recurrentFault(attention);
  return widthFault(attention, config.hiddenSize) ?? (attention.kind === 'gqa' ? gqaFault(attention) : undefined);
}

function normsFault({ attention, mlp, norms = 'before' }: LayerConfig, model: ModelConfig): Fault | undefined {
  const { residualScale, norm } = model;
  const alone = mlp.kind === 'experts' && !mlp.beside;
  if (norms === 'after' && norm.kind !== 'layer') return fault('norms', norms, 'norms of sums are LayerNorms');
  if (norms !== 'before' && (attention.kind !== 'gqa' || alone || residualScale !== 1)) {
    return fault('norms', norms, 'layers with them have grouped-query attention, a dense MLP and no residual scale');
  }
  if (norm.kind === 'layer' && (attention.kind !== 'gqa' || mlp.kind === 'experts' || attention.qkNorm))
    return fault(
      'norm',
      norm.kind,
      'layers with it have grouped-query attention without norms of q and k, and a dense MLP',
    );
  return undefined;
}

/** What needs norms behind halves. */
function behindFault({ mlp, norms, scaled, perLayer }: LayerConfig): Fault | undefined {
  if (scaled && norms !== 'both' && norms !== 'behind')
    return fault('layer_scalar', scaled, 'layers whose output is scaled have norms behind their halves');
  if (perLayer && (perLayer.width % 64 !== 0 || norms !== 'both'))
    return fault('hidden_size_per_layer_input', perLayer.width, 'a multiple of 64, of layers with norms on both sides');
  if (mlp.kind === 'experts' && mlp.beside && (norms !== 'both' || mlp.sharedWidth > 0 || mlp.bias))
    return fault('enable_moe_block', true, 'experts beside an MLP have norms on both sides, and no biases');
  return undefined;
}

function mlpFault(mlp: MlpConfig): Fault | undefined {
  if (mlp.kind === 'plain' && mlp.activation === 'silu')
    return fault('hidden_act', mlp.activation, 'an MLP without a gate has gelu or gelu_tanh');
  if (mlp.kind !== 'experts') return undefined;
  if (mlp.activation === 'gelu') return fault('hidden_act', mlp.activation, 'experts have silu or gelu_tanh');
  if (!mlp.beside && mlp.activation !== 'silu') return fault('hidden_act', mlp.activation, 'experts alone have silu');
  return mlp.sharedWidth > 0 && (mlp.bias || mlp.clamped)
    ? fault('shared experts', mlp.sharedWidth, 'biased or clamped experts have no shared ones beside them')
    : undefined;
}

function recurrentFault(mixer: RecurrentConfig): Fault | undefined {
  if (mixer.taps < 2 || mixer.taps > 8)
    return fault('conv kernel', mixer.taps, 'convolutions over 2 to 8 tokens are supported');
  if (mixer.kind === 'conv') return undefined;
  const { keyDim, valueDim } = mixer;
  const [keyName, valueName] =
    mixer.kind === 'mamba' ? ['mamba_d_state', 'mamba_d_head'] : ['linear_key_head_dim', 'linear_value_head_dim'];
  if (keyDim % 8 !== 0 || keyDim > MOST_KEY_DIM)
    return fault(keyName, keyDim, `linear attention takes multiples of 8 up to ${MOST_KEY_DIM}`);
  return valueDim % 8 === 0 ? undefined : fault(valueName, valueDim, 'linear attention takes multiples of 8');
}

function widthFault(attention: PagedAttention, hiddenSize: number): Fault | undefined {
  const widths: [key: string, width: number, step: number, most: number, source?: string][] =
    attention.kind === 'gqa'
      ? [['head_dim', attention.headDim, 8, MOST_HEAD_DIM, evenHeads(attention, hiddenSize)]]
      : [
          ['kv_lora_rank', attention.kvLoraRank, 32, 1024],
          ['qk_nope_head_dim', attention.qkNopeHeadDim, 8, 256],
          ['qk_rope_head_dim', attention.qkRopeHeadDim, 8, 256],
          ['v_head_dim', attention.vHeadDim, 8, 256],
        ];
  for (const [key, width, step, most, source = ''] of widths) {
    if (width % step !== 0 || width > most)
      return fault(key, width, `the attention kernels take multiples of ${step} up to ${most}${source}`);
  }
  const { rope } = attention;
  if (rope === null) return undefined;
  const whole = attention.kind === 'gqa' ? attention.headDim : attention.qkRopeHeadDim;
  const part = rope.dims / whole;
  if (attention.kind === 'mla' && part !== 1)
    return fault('partial_rotary_factor', part, 'only 1 (the whole head is rotated)');
  if (rope.temperature && part !== 1)
    return fault('partial_rotary_factor', part, 'only 1 (the whole head is rotated) where queries have a temperature');
  return rope.dims % 8 !== 0 || part > 1
    ? fault('partial_rotary_factor', part, `a multiple of 8 of a head's ${whole} elements is rotated`)
    : undefined;
}

/** Where a head_dim that no file states comes from. */
const evenHeads = ({ heads, headDim }: { heads: number; headDim: number }, hiddenSize: number): string =>
  heads * headDim === hiddenSize ? ` (hidden_size ${hiddenSize} / num_attention_heads ${heads})` : '';

function gqaFault(attention: GqaConfig): Fault | undefined {
  const { rope, sinks, gated, qkNorm, valueNorm, sharesKv, bothWays } = attention;
  if (rope?.interleaved && (gated || qkNorm === 'head'))
    return fault('rope_interleaved', true, 'gated attention, and norms of heads, need halves');
  if (gated && qkNorm === 'whole') return fault('qkNorm', qkNorm, 'gated attention has norms of heads');
  if (valueNorm && (qkNorm !== 'head' || gated))
    return fault('valueNorm', valueNorm, 'values are normalised where heads of q and k are');
  if (sharesKv !== undefined && (gated || sinks || qkNorm === 'whole'))
    return fault(
      'sharesKv',
      sharesKv,
      'layers that share keys and values have neither gates, sinks nor norms of all heads',
    );
  if (bothWays && (sinks || sharesKv !== undefined))
    return fault('bothWays', bothWays, 'attention both ways has no sinks and shares no keys');
  if (sinks && gated) return fault('sinks', true, 'gated attention has no sinks');
  return undefined;
}

/**
 * What plans and caches take to be one number of the model: kinds of attention, latents, the experts. Layers may differ in the rest,
 * grouped-query ones in their heads, too.
 */
function checkAlike({ layers }: ModelConfig, file: string): void {
  const firsts = new Map<string, readonly [layer: number, part: AttentionConfig | MlpConfig]>();
  layers.forEach((layer, index) => {
    for (const what of ['attention', 'mlp'] as const) {
      const part = layer[what];
      // MLPs of two kinds may alternate, and attention with mixers of another.
      const recurrent = what === 'attention' && isRecurrent(layer.attention);
      const group = what === 'mlp' || recurrent ? `${what} ${part.kind}` : what;
      const [first, alike] = firsts.get(group) ?? [index, part];
      firsts.set(group, [first, alike]);
      const field = differing(alike, part);
      if (field === undefined) continue;
      const of = (one: object): string => show((one as Record<string, unknown>)[field]);
      throw unsupportedError(
        `${file}: ${what}.${field} is ${of(part)} in layer ${index} and ${of(alike)} in layer ${first}; ` +
          'that is not supported: layers must be alike',
      );
    }
  });
}

/** Fields in which layers may differ; windows that cut nothing. */
const OWN_FIELDS: readonly string[] = [
  'window',
  'softcap',
  'rope',
  'scale',
  'bias',
  'qkNorm',
  'valueNorm',
  'loraNormEps',
];
/** With grouped-query attention also in these. */
const OWN_HEADS: readonly string[] = [...OWN_FIELDS, 'heads', 'kvHeads', 'headDim', 'keysAreValues', 'sharesKv'];

/** The first field in which two differ that must not; dense MLPs may in all. */
function differing(a: AttentionConfig | MlpConfig, b: AttentionConfig | MlpConfig): string | undefined {
  if (a === b || (a.kind === b.kind && (a.kind === 'gated' || a.kind === 'plain'))) return undefined;
  const own = a.kind === 'gqa' && b.kind === 'gqa' ? OWN_HEADS : OWN_FIELDS;
  const fields = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((field) => !own.includes(field));
  const text = (one: object, field: string): string => JSON.stringify((one as Record<string, unknown>)[field] ?? null);
  return fields.find((field) => text(a, field) !== text(b, field));
}
