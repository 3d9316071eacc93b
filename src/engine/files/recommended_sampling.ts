import { isObject, show } from '../../base/json.js';
import type { LoadOptions, RecommendedSampling } from '../contracts/api.js';

type Rule = readonly [option: keyof RecommendedSampling, expected: string, accepts: (value: number) => boolean];

/** By their names in generation_config.json. */
const RULES: Readonly<Record<string, Rule>> = {
  temperature: ['temperature', 'a number of at least 0', (value) => value >= 0],
  top_k: ['topK', 'an integer of at least 0', (value) => Number.isSafeInteger(value) && value >= 0],
  top_p: ['topP', 'a number above 0 and at most 1', (value) => value > 0 && value <= 1],
  min_p: ['minP', 'a number from 0 to 1', (value) => value >= 0 && value <= 1],
  repetition_penalty: ['repetitionPenalty', 'a number above 0', (value) => value > 0],
};

/**
 * What a generation_config.json says of sampling. Values that can't be are left out, with a warning; `do_sample: false` leaves out all
 * that has to do with drawing, as transformers does, and `true` without a temperature means 1.
 */
export function recommendedSampling(
  config: unknown,
  onWarning?: LoadOptions['onWarning'],
  file = 'generation_config.json',
): RecommendedSampling {
  if (!isObject(config)) return {};
  const draws = config['do_sample'];
  const sampling: { -readonly [Name in keyof RecommendedSampling]: number } = draws === true ? { temperature: 1 } : {};
  for (const [name, [option, expected, accepts]] of Object.entries(RULES)) {
    const value = config[name];
    if (value == null || (draws === false && option !== 'repetitionPenalty')) continue;
    if (typeof value === 'number' && Number.isFinite(value) && accepts(value)) sampling[option] = value;
    else onWarning?.(`${file}: ${name} is ${show(value)}; expected ${expected}. It is ignored`);
  }
  return sampling;
}
