import { isObject } from '../base/json.js';
import type { ConfigReader } from './config_reader.js';

/** How rotary frequencies are stretched beyond the trained context; null: not at all. */
export type RopeScaling =
  | null
  | { type: 'linear'; factor: number }
  | {
      type: 'llama3';
      factor: number;
      lowFreqFactor: number;
      highFreqFactor: number;
      /** Context length before stretching, tokens. */
      originalMaxPositions: number;
    };

export interface RopeConfig {
  ropeTheta: number;
  ropeScaling: RopeScaling;
}

const supported = "this runtime has 'default', 'linear' and 'llama3'";

/**
 * Reads `rope_theta` with `rope_scaling` (transformers 4: `rope_type`, older `type`) or `rope_parameters` (transformers 5:
 * the theta inside).
 */
export function parseRope(config: ConfigReader): RopeConfig {
  refusePartialRotary(config);
  const parameters = config.optionalObject('rope_parameters');
  const scaling = config.optionalObject('rope_scaling');
  const ropeTheta = parameters?.optionalPositive('rope_theta') ?? config.optionalPositive('rope_theta') ?? 10000;
  if (parameters !== undefined) refusePartialRotary(parameters);
  const rope = parameters ?? scaling;
  return { ropeTheta, ropeScaling: rope === undefined ? null : parseScaling(rope) };
}

function parseScaling(rope: ConfigReader): RopeScaling {
  for (const key of ['full_attention', 'sliding_attention']) {
    if (isObject(rope.raw(key)))
      throw rope.unsupported(key, rope.raw(key), 'all layers must share one rotary embedding');
  }
  const modern = rope.optionalString('rope_type');
  const legacy = rope.optionalString('type');
  const key = modern === undefined ? 'type' : 'rope_type';
  const type = modern ?? legacy ?? 'default';
  switch (type) {
    case 'default':
      if (rope.raw('factor') !== undefined && modern === undefined && legacy === undefined)
        return rope.missing('rope_type');
      return null;
    case 'linear':
      return { type, factor: rope.positive('factor') };
    case 'llama3': {
      const lowFreqFactor = rope.positive('low_freq_factor');
      const highFreqFactor = rope.positive('high_freq_factor');
      if (highFreqFactor <= lowFreqFactor) {
        throw rope.invalid('high_freq_factor', highFreqFactor, `more than low_freq_factor (${lowFreqFactor})`);
      }
      return {
        type,
        factor: rope.positive('factor'),
        lowFreqFactor,
        highFreqFactor,
        originalMaxPositions: rope.integer('original_max_position_embeddings', { min: 1, max: 2 ** 30 }),
      };
    }
    default:
      throw rope.unsupported(key, type, supported);
  }
}

function refusePartialRotary(reader: ConfigReader): void {
  const factor = reader.optionalPositive('partial_rotary_factor') ?? 1;
  if (factor !== 1) {
    throw reader.unsupported('partial_rotary_factor', factor, 'only 1 (the whole head is rotated)');
  }
}
