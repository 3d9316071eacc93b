import { usageError } from '../../base/errors.js';
import { checkOptions, oneOf, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { type NetworkOptions, parseIntegrity } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { KV_TYPES } from '../../model/layers/attention/cache.js';
import { checkTogether, MAX_STEPS_IN_FLIGHT } from '../../placement/index.js';
import { parseAttentionDpConfig } from '../scheduler/adp/config.js';
import type { LoadOptions } from './api.js';
import { checkPrefill } from './check_prefill.js';

/** Tokens of a context, where the options say nothing and the model has as many positions. */
export const DEFAULT_CONTEXT = 4096;

/** Ranks that a plan may have. */
export const MAX_RANKS = 64;

export const loadSchema: OptionsSchema<LoadOptions> = {
  weights: oneOf(['auto', 'f32', 'f16', 'q8', 'q4']),
  kv: oneOf(['auto', ...KV_TYPES]),
  kvBudget: true,
  kvPolicy: true,
  kvWindow: true,
  kvKernel: true,
  kvAlpha: true,
  kvProfile: true,
  copies: wholeNumber(0, 1023),
  contextLength: wholeNumber(1, 2 ** 20),
  prefillChunk: wholeNumber(1, 4096),
  stepsInFlight: wholeNumber(1, MAX_STEPS_IN_FLIGHT),
  ranks: true,
  plan: true,
  tensor: wholeNumber(1, MAX_RANKS),
  token: (value) => (typeof value === 'number' ? wholeNumber(1, MAX_RANKS)(value) : undefined),
  sequence: wholeNumber(1, MAX_RANKS),
  pipeline: wholeNumber(1, MAX_RANKS),
  data: wholeNumber(1, MAX_RANKS),
  virtualRanks: true,
  workers: true,
  cluster: true,
  memory: true,
  requests: wholeNumber(1, 64),
  prefixCaching: true,
  attentionDpConfig: true,
  prefill: true,
  powerPreference: oneOf(['high-performance', 'low-power']),
  adapter: true,
  variants: oneOf(['auto', 'hardware', 'software']),
  tune: true,
  precision: oneOf(['exact', 'fast']),
  cache: true,
  integrity: true,
  hub: true,
  hubToken: true,
  headers: true,
  fetch: true,
  onProgress: true,
  onWarning: true,
  signal: true,
};

/**
 * Checks what is known of the options before the model is.
 * @throws SplitkvError `usage` for an option or a value that isn't known, or options that don't go together
 */
export function checkLoadOptions(options: LoadOptions): void {
  checkOptions('load', options, loadSchema);
  const given = (['workers', 'virtualRanks'] as const).filter((name) => options[name]);
  checkTogether(given);
  checkPrefill(options.prefill);
  if (options.attentionDpConfig !== undefined) parseAttentionDpConfig(options.attentionDpConfig);
  if (options.integrity !== undefined) parseIntegrity(options.integrity);
}

/** What is said of the network, and nothing else. */
export function networkOf({
  hub,
  token,
  hubToken = typeof token === 'string' ? token : undefined,
  headers,
  fetch: given,
}: Pick<LoadOptions, keyof NetworkOptions | 'hubToken'>): NetworkOptions {
  return {
    ...(hub !== undefined && { hub }),
    ...(hubToken !== undefined && { token: hubToken }),
    ...(headers && { headers }),
    ...(given && { fetch: given }),
  };
}

/** Tokens that a sequence may have. @throws SplitkvError `usage` beyond the model's positions */
export function checkContext(asked: number | undefined, config: ModelConfig): number {
  if (asked === undefined) return Math.min(config.maxPositions, DEFAULT_CONTEXT);
  if (asked > config.maxPositions) {
    throw usageError(`contextLength ${asked}: this model has at most ${config.maxPositions} positions`);
  }
  return asked;
}
