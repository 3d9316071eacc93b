import { isObject } from '../../base/json.js';
import type { ConfigReader } from './config_reader.js';

const positions = { min: 1, max: 2 ** 30 };

export type RopeStretch =
  | { type: 'linear'; factor: number }
  | {
      type: 'llama3';
      factor: number;
      lowFreqFactor: number;
      highFreqFactor: number;
      /** Context length before stretching, tokens. */
      originalMaxPositions: number;
    }
  | {
      /** YaRN (arXiv 2309.00071) as DeepSeek has it. */
      type: 'yarn';
      factor: number;
      originalMaxPositions: number;
      /** Turns in the trained context above which a frequency stays as it is, and below which it is divided by `factor`. */
      betaFast: number;
      betaSlow: number;
      /** False: the blend's bounds aren't rounded to whole dimensions; default true. */
      truncate?: boolean;
      /** DeepSeek's mscale_all_dim; 0: the softmax scale stays as it is (see `yarnMscale`). */
      mscaleAllDim: number;
      /** Multiplies every cos and sin. */
      attentionFactor: number;
    }
  | {
      /** LongRoPE (arXiv 2402.13753): each frequency has its own divisor. Where pairs stand still, that is `STILL`. */
      type: 'longrope';
      /** [dims / 2] each. */
      shortFactor: number[];
      longFactor: number[];
      originalMaxPositions: number;
      /** Multiplies every cos and sin. */
      attentionFactor: number;
    };

export type RopeScaling = RopeStretch | null;

/** Divisor of a frequency that turns nothing, as llama.cpp's files have it. */
const STILL = 1e30;

/** Words of config.json for them. */
type StretchName = RopeStretch['type'] | 'proportional';

/** The rotary embedding of queries and keys: position p turns pair i of a head by p * frequency(i). */
export interface RopeConfig {
  readonly theta: number;
  /** null: not stretched. */
  readonly scaling: RopeScaling;
  /** Elements of a head that are rotated: its first ones; of latent attention, whose keys have them apart, its last. */
  readonly dims: number;
  /**
   * True: the checkpoint's rows of a head come in pairs (2i, 2i + 1); loading puts the even ones first. False: they are in halves
   * (i, i + dims / 2), which is how they are turned. 'by axis': both halves of a head have halves, the first for a patch's column; loading
   * puts the lines' pairs first.
   */
  readonly interleaved: boolean | 'by axis';
  /**
   * Of rows of pictures, which have three positions: pair i turns by the line's where i % 3 is 1 and below 3 * lines, by the column's where
   * it is 2 and below 3 * columns, otherwise by the picture's. With `before`: so many pairs by the picture's, then the lines', then the
   * columns'.
   */
  readonly sections?: { readonly lines: number; readonly columns: number; readonly before?: number };
  /** Queries at position p are multiplied by 1 + beta ln(1 + floor(p / length)) as well. */
  readonly temperature?: { readonly beta: number; readonly length: number };
}

/**
 * Reads `rope_theta` with `rope_scaling` (transformers 4: `rope_type`, older `type`) or `rope_parameters` (transformers 5:
 * the theta inside), and `partial_rotary_factor`.
 *
 * @param width of the part of a head that is rotated where the factor is 1
 * @param types the stretches this architecture has, besides none.
 * @param otherwise `partial_rotary_factor` where the file doesn't say
 */
export function parseRope(
  config: ConfigReader,
  width: number,
  types: readonly StretchName[] = ['linear', 'llama3'],
  interleaved = false,
  otherwise = 1,
): RopeConfig {
  const parameters = config.optionalObject('rope_parameters');
  const scaling = config.optionalObject('rope_scaling');
  const turns = parseTurns(config, parameters, width, otherwise);
  const rope = parameters ?? scaling;
  return { ...turns, scaling: rope === undefined ? null : parseScaling(config, rope, types, turns.dims), interleaved };
}

/**
 * The base, and how many elements of a head are rotated.
 * @param inside the rotary embedding's own object, whose keys win over those beside it
 */
export function parseTurns(
  config: ConfigReader,
  inside: ConfigReader | undefined,
  width: number,
  otherwise = 1,
): Pick<RopeConfig, 'theta' | 'dims'> {
  const positive = (key: string): number | undefined => inside?.optionalPositive(key) ?? config.optionalPositive(key);
  return {
    theta: positive('rope_theta') ?? 10000,
    dims: Math.floor(width * (positive('partial_rotary_factor') ?? otherwise)),
  };
}

/**
 * Qwen's `mrope_section`.
 * @param otherwise where the file doesn't say
 * @param takesTurns false: one axis' pairs lie behind the other's
 */
export function parseSections(
  config: ConfigReader,
  otherwise: readonly number[],
  takesTurns = true,
): Pick<RopeConfig, 'sections'> {
  const rope = config.optionalObject('rope_parameters') ?? config.optionalObject('rope_scaling');
  const given = rope?.raw('mrope_section') ?? otherwise;
  const isList =
    Array.isArray(given) && given.length === 3 && given.every((each) => Number.isInteger(each) && each >= 0);
  if (!isList) throw config.invalid('mrope_section', given, 'three numbers of pairs');
  const [before, lines, columns] = given.map(Number) as [number, number, number];
  return { sections: { lines, columns, ...(!takesTurns && { before }) } };
}

/** Llama 4's, in the keys of transformers' Ministral 3. */
export function parseTemperature(config: ConfigReader): Pick<RopeConfig, 'temperature'> {
  const rope = config.optionalObject('rope_parameters') ?? config.optionalObject('rope_scaling');
  const beta = rope?.optionalPositive('llama_4_scaling_beta');
  if (!rope || beta === undefined) return {};
  return { temperature: { beta, length: rope.integer('original_max_position_embeddings', positions) } };
}

export type LayerType = 'full_attention' | 'sliding_attention';

/**
 * The rotary embedding of layers of a type, where `rope_parameters` say one for each type (transformers 5); otherwise undefined.
 * @param theta where they don't say it
 */
export function parseLayerRope(
  config: ConfigReader,
  type: LayerType,
  width: number,
  theta: number,
  types: readonly StretchName[],
): RopeConfig | undefined {
  const own = config.optionalObject('rope_parameters')?.optionalObject(type);
  if (!own) return undefined;
  const scaling = parseScaling(config, own, types, width);
  return { theta: own.optionalPositive('rope_theta') ?? theta, scaling, dims: width, interleaved: false };
}

/** DeepSeek's yarn_get_mscale: 0.1 mscale ln(factor) + 1, and 1 where nothing is stretched. */
export function yarnMscale(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/**
 * What scores of latent attention are multiplied by. DeepSeek's own code and transformers' DeepSeek-V3 have mscale^2 in it;
 * transformers' DeepSeek-V2 leaves it out, against what its checkpoints were trained with.
 *
 * @param width of a head of q and k
 */
export function latentScale(width: number, scaling: RopeScaling): number {
  const mscale = scaling?.type === 'yarn' ? yarnMscale(scaling.factor, scaling.mscaleAllDim) : 1;
  return (mscale * mscale) / Math.sqrt(width);
}

function parseScaling(
  config: ConfigReader,
  rope: ConfigReader,
  types: readonly StretchName[],
  dims: number,
): RopeScaling {
  for (const key of ['full_attention', 'sliding_attention']) {
    if (isObject(rope.raw(key)))
      throw rope.unsupported(key, rope.raw(key), 'all layers must share one rotary embedding');
  }
  const modern = rope.optionalString('rope_type');
  const legacy = rope.optionalString('type');
  const key = modern === undefined ? 'type' : 'rope_type';
  const type = modern ?? legacy ?? 'default';
  // Qwen's has sections, which are read elsewhere.
  if (type === 'default' || type === 'mrope') {
    if (rope.raw('factor') !== undefined && modern === undefined && legacy === undefined)
      return rope.missing('rope_type');
    return null;
  }
  switch (types.find((one) => one === type)) {
    case 'linear':
      return { type: 'linear', factor: rope.positive('factor') };
    case 'llama3':
      return parseLlama3(rope);
    case 'yarn':
      return parseYarn(rope);
    case 'longrope':
      return parseLongRope(config, rope, dims);
    case 'proportional':
      return parseProportional(config, rope, dims);
    default: {
      const names = ['default', ...types].map((name) => `'${name}'`);
      throw rope.unsupported(key, type, `this model can have ${names.slice(0, -1).join(', ')} and ${names.at(-1)}`);
    }
  }
}

function parseLlama3(rope: ConfigReader): RopeScaling {
  const lowFreqFactor = rope.positive('low_freq_factor');
  const highFreqFactor = rope.positive('high_freq_factor');
  if (highFreqFactor <= lowFreqFactor) {
    throw rope.invalid('high_freq_factor', highFreqFactor, `more than low_freq_factor (${lowFreqFactor})`);
  }
  return {
    type: 'llama3',
    factor: rope.positive('factor'),
    lowFreqFactor,
    highFreqFactor,
    originalMaxPositions: rope.integer('original_max_position_embeddings', positions),
  };
}

/**
 * cos and sin are multiplied by yarnMscale(factor, mscale) / yarnMscale(factor, mscale_all_dim), where an absent mscale is 1 and
 * an absent mscale_all_dim 0, as in DeepSeek's own code; `attention_factor` replaces that, as in transformers.
 */
function parseYarn(rope: ConfigReader): RopeScaling {
  const factor = rope.positive('factor');
  const betaFast = rope.optionalPositive('beta_fast') ?? 32;
  const betaSlow = rope.optionalPositive('beta_slow') ?? 1;
  if (betaFast <= betaSlow) throw rope.invalid('beta_fast', betaFast, `more than beta_slow (${betaSlow})`);
  const mscale = optionalNonNegative(rope, 'mscale') ?? 1;
  const mscaleAllDim = optionalNonNegative(rope, 'mscale_all_dim') ?? 0;
  return {
    type: 'yarn',
    factor,
    originalMaxPositions: rope.integer('original_max_position_embeddings', positions),
    betaFast,
    betaSlow,
    ...(!rope.boolean('truncate', true) && { truncate: false }),
    mscaleAllDim,
    attentionFactor:
      rope.optionalPositive('attention_factor') ?? yarnMscale(factor, mscale) / yarnMscale(factor, mscaleAllDim),
  };
}

/**
 * The attention factor is sqrt(1 + ln(scale) / ln(original)), with scale = `factor` or max_position_embeddings over the original
 * length, and 1 where nothing is stretched; `attention_factor` replaces it.
 */
function parseLongRope(config: ConfigReader, rope: ConfigReader, dims: number): RopeScaling {
  const originalMaxPositions = rope.integer('original_max_position_embeddings', { min: 2, max: 2 ** 30 });
  const scale =
    rope.optionalPositive('factor') ?? config.integer('max_position_embeddings', positions) / originalMaxPositions;
  return longRope(rope, dims, scale, originalMaxPositions);
}

/** Of the whole head's frequencies the first `partial_rotary_factor` are as they are (over `factor`), the others 0. */
function parseProportional(config: ConfigReader, rope: ConfigReader, dims: number): RopeScaling {
  const turned = Math.floor(((rope.optionalPositive('partial_rotary_factor') ?? 1) * dims) / 2);
  const factor = rope.optionalPositive('factor') ?? 1;
  const divisors = Array.from({ length: dims / 2 }, (_, i) => (i < turned ? factor : STILL));
  return {
    type: 'longrope',
    shortFactor: divisors,
    longFactor: divisors,
    originalMaxPositions: config.integer('max_position_embeddings', positions),
    attentionFactor: 1,
  };
}

/**
 * LongRoPE of `dims` elements of a head, by the lists that `rope` has.
 * @param scale the context over the trained one
 */
export function longRope(rope: ConfigReader, dims: number, scale: number, originalMaxPositions: number): RopeScaling {
  const list = (key: string): number[] => {
    const given = rope.raw(key) ?? rope.missing(key);
    const known = Array.isArray(given) && given.length === dims / 2;
    if (!known || !given.every((value) => typeof value === 'number' && value > 0 && value < Infinity))
      throw rope.invalid(key, given, `${dims / 2} positive numbers (${dims} elements of a head are rotated)`);
    return given;
  };
  const stretch = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(originalMaxPositions));
  return {
    type: 'longrope',
    shortFactor: list('short_factor'),
    longFactor: list('long_factor'),
    originalMaxPositions,
    attentionFactor: rope.optionalPositive('attention_factor') ?? stretch,
  };
}

function optionalNonNegative(rope: ConfigReader, key: string): number | undefined {
  return rope.raw(key) === 0 ? 0 : rope.optionalPositive(key);
}
