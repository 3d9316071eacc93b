import { MEL_BINS } from '../../sound/limits.js';
import type { NormConfig } from '../config/model_config.js';
import type { ConformerConfig } from '../config/sound_config.js';
import { type NormSpec, normSpec, plainNorm } from '../layers/norm.js';
import { BOUNDS } from '../vision/encoder_specs.js';
import { range } from '../../base/lists.js';
import { allRows, type MatrixSpec, type VectorSpec, wholeMatrix, wholeVector } from '../weights/weight_map.js';

/** Which tensors an encoder of sound is made of, under `sound.` and transformers' names. */
export interface SoundSpecs {
  /** Kernels [channels][inputs][3][3], and the norms behind them. */
  readonly subsample: readonly { readonly kernel: VectorSpec; readonly norm: VectorSpec }[];
  /** [hidden, bins that are left * channels]. */
  readonly input: MatrixSpec;
  readonly layers: readonly SoundLayerSpecs[];
  /** [outSize, hidden]. */
  readonly output: MatrixSpec;
  readonly outputBias: VectorSpec;
  /** It has no weights. */
  readonly norm: NormSpec;
  /** [the decoder's hidden, outSize]. */
  readonly project: MatrixSpec;
}

interface SoundLayerSpecs {
  /** `CLIPPED` by `BOUNDS`; undefined: there are none. */
  readonly bounds: VectorSpec | undefined;
  readonly before: FeedForwardSpecs;
  readonly attention: {
    readonly before: NormSpec;
    /** Queries, keys and values. */
    readonly parts: readonly MatrixSpec[];
    /** Of places. */
    readonly relative: MatrixSpec;
    /** [elements of a head]. */
    readonly scale: VectorSpec;
    readonly out: MatrixSpec;
    readonly behind: NormSpec;
  };
  readonly conv: {
    readonly before: NormSpec;
    /** [2 hidden, hidden]. */
    readonly into: MatrixSpec;
    /** [hidden][taps]. */
    readonly taps: VectorSpec;
    readonly norm: VectorSpec;
    readonly out: MatrixSpec;
  };
  readonly behind: FeedForwardSpecs;
  readonly norm: NormSpec;
}

interface FeedForwardSpecs {
  readonly before: NormSpec;
  readonly into: MatrixSpec;
  readonly out: MatrixSpec;
  /** Times `factor`. */
  readonly behind: NormSpec;
}

/** Matrices of a layer whose inputs and outputs have bounds. */
export const CLIPPED = [
  'feed_forward1.ffw_layer_1',
  'feed_forward1.ffw_layer_2',
  ...['q_proj', 'k_proj', 'v_proj', 'post'].map((part) => `self_attn.${part}`),
  'lconv1d.linear_start',
  'lconv1d.linear_end',
  'feed_forward2.ffw_layer_1',
  'feed_forward2.ffw_layer_2',
];

/** Of norms that have it from transformers' class. */
const CLASS_NORM = { kind: 'rms', eps: 1e-6 } as const;

/** @param textWidth hidden size of the decoder */
export function soundSpecs(sound: ConformerConfig, textWidth: number): SoundSpecs {
  const { hiddenSize: hidden, channels, eps, outSize } = sound;
  const at = 'sound.subsample_conv_projection';
  return {
    subsample: channels.map((own, index) => ({
      kernel: vector(`${at}.layer${index}.conv`, 9 * own * (index === 0 ? 1 : channels[0])),
      norm: vector(`${at}.layer${index}.norm`, own),
    })),
    input: wholeMatrix(`${at}.input_proj_linear`, hidden, (MEL_BINS / 4) * channels[1]),
    layers: range(0, sound.layers).map((layer) => layerSpecs(sound, `sound.layers.${layer}`)),
    output: wholeMatrix('sound.output_proj', outSize, hidden),
    outputBias: wholeVector('sound.output_bias', 'sound.output_proj.bias', outSize),
    norm: plainNorm({ kind: 'rms', eps }, 'sound.norm', outSize),
    project: wholeMatrix('sound.project', textWidth, outSize),
  };
}

function layerSpecs(
  { hiddenSize: hidden, heads, taps, eps, factor, clipped }: ConformerConfig,
  at: string,
): SoundLayerSpecs {
  const norm = (name: string, config: NormConfig = CLASS_NORM): NormSpec =>
    normSpec(config, `${at}.${name}`, `${at}.${name}`, hidden);
  const own = (name: string, rows: number, inFeatures = hidden): MatrixSpec =>
    wholeMatrix(`${at}.${name}`, rows, inFeatures);
  const half = (name: string): FeedForwardSpecs => {
    const behind = norm(`${name}.post_layer_norm`);
    return {
      before: norm(`${name}.pre_layer_norm`),
      into: own(`${name}.ffw_layer_1`, 4 * hidden),
      out: own(`${name}.ffw_layer_2`, hidden, 4 * hidden),
      behind: { ...behind, weight: { ...behind.weight, times: factor } },
    };
  };
  return {
    bounds: clipped
      ? {
          name: `${at}.bounds`,
          parts: CLIPPED.flatMap((name) => BOUNDS.map((bound) => allRows(`${at}.${name}.${bound}`, 1))),
        }
      : undefined,
    before: half('feed_forward1'),
    attention: {
      before: norm('norm_pre_attn'),
      parts: ['q', 'k', 'v'].map((part) => own(`self_attn.${part}_proj`, hidden)),
      relative: own('self_attn.relative_k_proj', hidden),
      scale: vector(`${at}.self_attn.per_dim_scale`, hidden / heads),
      out: own('self_attn.post', hidden),
      behind: norm('norm_post_attn'),
    },
    conv: {
      before: norm('lconv1d.pre_layer_norm', { kind: 'rms', eps }),
      into: own('lconv1d.linear_start', 2 * hidden),
      taps: vector(`${at}.lconv1d.depthwise_conv1d`, hidden * taps),
      norm: vector(`${at}.lconv1d.conv_norm`, hidden),
      out: own('lconv1d.linear_end', hidden),
    },
    behind: half('feed_forward2'),
    norm: norm('norm_out'),
  };
}

const vector = (name: string, length: number): VectorSpec => wholeVector(name, `${name}.weight`, length);
