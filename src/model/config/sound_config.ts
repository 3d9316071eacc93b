import type { ConfigReader } from './config_reader.js';

/** What makes rows of sound that take the places of placeholders. */
export type SoundConfig = ConformerConfig | SamplesConfig;

interface SoundBase {
  /** A placeholder's id, of which a prompt has one for each row; in a text it stands for a recording. */
  readonly soundToken: number;
  /** Of the norms that have no eps of their own. */
  readonly eps: number;
  /** The GGUF file that has it, where it isn't the decoder's. */
  readonly file?: string;
}

/** No encoder: so many samples, normalised, are multiplied into a row (vision/embedder.ts). */
export interface SamplesConfig extends SoundBase {
  readonly frame: number;
}

/** An encoder of sound beside a decoder, a conformer: four log-mel frames (src/sound/mel.ts) become a row. */
export interface ConformerConfig extends SoundBase {
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Behind each of the two convolutions that halve frames and bins. */
  readonly channels: readonly [number, number];
  /** Of the convolution in a layer. */
  readonly taps: number;
  /** Rows that a row attends to: itself and those before it. */
  readonly keys: number;
  /** What scores stay below. */
  readonly cap: number;
  /** What a feed-forward half is multiplied by, before it is added. */
  readonly factor: number;
  /** Elements of a row before the decoder's. */
  readonly outSize: number;
  /** What goes into the layers' matrices and comes out of them has bounds, which the file has. */
  readonly clipped: boolean;
  /** The file has softplus(scale) of queries' elements in place of scale. */
  readonly softened?: true;
}

/** What transformers takes for keys that Gemma 4's config leaves out. */
const defaults = {
  hidden_size: 1024,
  num_hidden_layers: 12,
  num_attention_heads: 8,
  hidden_act: 'silu',
  subsampling_conv_channels: [128, 32],
  conv_kernel_size: 5,
  residual_weight: 0.5,
  attention_chunk_size: 12,
  attention_context_left: 13,
  attention_context_right: 0,
  attention_logit_cap: 50,
  use_clipped_linears: true,
  rms_norm_eps: 1e-6,
  gradient_clipping: 1e10,
  output_proj_dims: 1536,
};

/** Channels that frames of 128 bins must have: transformers counts the bins that are left by them. */
const FIRST_CHANNELS = 128;
/** Activations come nowhere near it. */
const LEAST_CLIPPING = 1e10;

/** Gemma 4's `audio_config`. @throws SplitkvError `unsupported` for what would be computed otherwise */
export function parseGemma4Sound(config: ConfigReader, soundToken: number): ConformerConfig {
  config.setDefaults(defaults);
  const refuse = (key: string, fits: boolean, expected: string): void => {
    if (!fits) throw config.unsupported(key, config.raw(key), expected);
  };
  const hiddenSize = config.integer('hidden_size');
  const heads = config.integer('num_attention_heads', { min: 1, max: 256 });
  const channels = config.raw('subsampling_conv_channels');
  const keys = config.integer('attention_context_left', { min: 2, max: 17 }) - 1;
  const [first, second] = Array.isArray(channels) ? (channels as unknown[]) : [];
  refuse('hidden_size', hiddenSize % 32 === 0 && hiddenSize % heads === 0, 'a multiple of 32 and of the heads');
  refuse('hidden_act', config.raw('hidden_act') === 'silu', "only 'silu'");
  refuse(
    'subsampling_conv_channels',
    first === FIRST_CHANNELS && Number.isInteger(second) && Number(second) >= 1 && Number(second) <= 1024,
    `[${FIRST_CHANNELS}, up to 1024]`,
  );
  refuse('attention_chunk_size', config.raw('attention_chunk_size') === keys, 'attention_context_left - 1');
  refuse('attention_context_right', config.raw('attention_context_right') === 0, '0: a row sees none after it');
  refuse('gradient_clipping', config.positive('gradient_clipping') >= LEAST_CLIPPING, `at least ${LEAST_CLIPPING}`);
  return {
    soundToken,
    hiddenSize,
    layers: config.integer('num_hidden_layers', { min: 1, max: 256 }),
    heads,
    channels: [FIRST_CHANNELS, Number(second)],
    taps: config.integer('conv_kernel_size', { min: 2, max: 8 }),
    keys,
    cap: config.positive('attention_logit_cap'),
    factor: config.positive('residual_weight'),
    eps: config.positive('rms_norm_eps'),
    outSize: config.integer('output_proj_dims'),
    clipped: config.boolean('use_clipped_linears', true),
  };
}

/** Gemma 4 12B's `audio_config`. */
export function parseGemma4Samples(config: ConfigReader, soundToken: number): SamplesConfig {
  config.setDefaults({ audio_embed_dim: 640, rms_norm_eps: 1e-6 });
  const frame = config.integer('audio_embed_dim', { min: 32, max: 2 ** 14 });
  return { soundToken, frame, eps: config.positive('rms_norm_eps') };
}
