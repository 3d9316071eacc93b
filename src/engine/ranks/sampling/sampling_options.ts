import { LEAST_TEMPERATURE } from '../../../../shaders/sampling/params.js';
import { usageError } from '../../../base/errors.js';
import { show } from '../../../base/json.js';
import { snake } from '../../../base/names.js';
import { defined, isWithin, type OptionsSchema, rangeText } from '../../../base/options.js';
import type { SamplingOptions } from '../../contracts/api.js';
import type { OptionRow } from '../../contracts/options/row.js';
import { SAMPLING_ROWS } from '../../contracts/options/sampling_rows.js';
import type { AllowedTokens } from '../../contracts/rank.js';

/** For options that say how to sample among others; `checkSampling` checks their values. */
export const samplingSchema = Object.fromEntries(
  Object.keys(SAMPLING_ROWS).map((name) => [name, true]),
) as OptionsSchema<SamplingOptions>;

/** Of a request's options those that sampling needs, and nothing that can't go to a worker. */
export const samplingOf = <T extends SamplingOptions>(options: T): Pick<T, keyof SamplingOptions> =>
  defined(
    Object.fromEntries(Object.keys(SAMPLING_ROWS).map((name) => [name, options[name as keyof SamplingOptions]])),
  ) as Pick<T, keyof SamplingOptions>;

/** Of a request's options what the engine is told of sampling and of the end: copies, as they may be sent again after a preemption. */
export const engineSampling = <T extends SamplingOptions & { readonly ignoreEos?: boolean | undefined }>(
  options: T,
  eosIds: readonly number[],
): Pick<T, keyof SamplingOptions> & { readonly eosIds: readonly number[]; readonly endIds?: readonly number[] } => ({
  ...samplingOf(options),
  ...(options.logitBias && { logitBias: new Map(biasEntries(options.logitBias)) }),
  // What `minTokens` holds back: the model's own also where they are ignored, as in vLLM.
  ...((options.minTokens ?? 0) > 0 && { endIds: [...eosIds, ...(options.stopTokenIds ?? [])] }),
  eosIds: options.ignoreEos ? [] : eosIds,
});

export const stopTexts = (stop: string | readonly string[] | null | undefined): readonly string[] =>
  stop == null ? [] : typeof stop === 'string' ? [stop] : stop;

/** As the GPU sees it. */
export const isGreedy = ({ temperature = 0 }: SamplingOptions): boolean =>
  Math.fround(temperature) < Math.fround(LEAST_TEMPERATURE);

/** (token id, bias) of a `logitBias`. */
export const biasEntries = (bias: SamplingOptions['logitBias'] = {}): (readonly [id: number, value: number])[] =>
  bias instanceof Map ? [...bias] : Object.entries(bias).map(([id, value]) => [Number(id), value]);

/** The logits change before they are searched: the least that every other request can do without. */
export function hasControls(options: SamplingOptions & { readonly allowed?: AllowedTokens | undefined }): boolean {
  const { frequencyPenalty = 0, presencePenalty = 0, minTokens = 0, logitBias } = options;
  return (
    options.allowed !== undefined ||
    dropsUnlikely(options) ||
    frequencyPenalty !== 0 ||
    presencePenalty !== 0 ||
    minTokens > 0 ||
    biasEntries(logitBias).length > 0
  );
}

/** Which tokens were seen, or how often, changes the logits. */
export const readsSeen = (options: SamplingOptions & { readonly allowed?: AllowedTokens | undefined }): boolean =>
  hasControls(options) || (options.repetitionPenalty ?? 1) !== 1;

export const dropsUnlikely = (options: SamplingOptions): boolean => (options.minP ?? 0) > 0 && !isGreedy(options);

/**
 * @param vocabSize ids are below it; default: as large as may be
 * @throws SplitkvError `usage` for a value out of range, what is no id of a token, or no bias
 */
export function checkControls(options: SamplingOptions & { readonly maxTokens?: number }, vocabSize = 2 ** 31): void {
  for (const [name, { range, default: preset }] of Object.entries<OptionRow>(SAMPLING_ROWS)) {
    const value = options[name as keyof SamplingOptions];
    if (value === undefined || !range || isWithin(value, range)) continue;
    throw usageError(`${snake(name)} ${show(value)}: use ${rangeText(range)}, or leave it out (${preset})`);
  }
  const { minTokens = 0, maxTokens, stopTokenIds = [], logitBias = {} } = options;
  if (maxTokens !== undefined && minTokens > maxTokens)
    throw usageError(`min_tokens ${minTokens}: more than the ${maxTokens} of max_tokens; use at most that`);
  const checkId = (name: string, id: number): void => {
    if (!(Number.isInteger(id) && id >= 0 && id < vocabSize))
      throw usageError(`${name}: token ${id}; this model's ids are integers from 0 to ${vocabSize - 1}`);
  };
  if (!Array.isArray(stopTokenIds)) throw usageError(`stop_token_ids ${String(stopTokenIds)}: use a list of token ids`);
  for (const id of stopTokenIds) checkId('stop_token_ids', id);
  if (typeof logitBias !== 'object')
    throw usageError(`logit_bias ${String(logitBias)}: use an object of biases by token id`);
  for (const [id, bias] of biasEntries(logitBias)) {
    checkId('logit_bias', id);
    if (!Number.isFinite(bias))
      throw usageError(`logit_bias of token ${id}: ${String(bias)}; use a number, such as -100`);
  }
}
