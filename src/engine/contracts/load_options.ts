import { usageError } from '../../base/errors.js';
import { checkOptions, defined, type OptionsSchema } from '../../base/options.js';
import { type NetworkOptions, parseIntegrity } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { checkTogether } from '../../placement/index.js';
import { parseAttentionDpConfig } from '../scheduler/adp/config.js';
import type { LoadOptions } from './api.js';
import { checkPrefill } from './check_prefill.js';
import { LOAD_ROWS } from './options/load_rows.js';
import { schemaOf } from './options/row.js';

/** Tokens of a context, where the options say nothing and the model has as many positions. */
export const DEFAULT_CONTEXT = 4096;

export const loadSchema: OptionsSchema<LoadOptions> = schemaOf(LOAD_ROWS);

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
  return defined({ hub, token: hubToken, headers, fetch: given });
}

/** Tokens that a sequence may have. @throws SplitkvError `usage` beyond the model's positions */
export function checkContext(asked: number | undefined, config: ModelConfig): number {
  if (asked === undefined) return Math.min(config.maxPositions, DEFAULT_CONTEXT);
  if (asked > config.maxPositions) {
    throw usageError(`contextLength ${asked}: this model has at most ${config.maxPositions} positions`);
  }
  return asked;
}
