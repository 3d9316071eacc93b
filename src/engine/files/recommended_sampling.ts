import { isObject, show } from '../../base/json.js';
import { snake } from '../../base/names.js';
import { isWithin, rangeText } from '../../base/options.js';
import type { LoadOptions, RecommendedSampling } from '../contracts/api.js';
import type { OptionRow } from '../contracts/options/row.js';
import { SAMPLING_ROWS } from '../contracts/options/sampling_rows.js';

/** What may be recommended, with its name in generation_config.json. */
const RECOMMENDED = Object.entries<OptionRow>(SAMPLING_ROWS)
  .filter(([, { recommended }]) => recommended !== undefined)
  .map(([option, row]) => [option as keyof RecommendedSampling, snake(option), row] as const);

/** The same in a GGUF file's metadata, under the names of generation_config.json. */
export const ggufSampling = (metadata: ReadonlyMap<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    RECOMMENDED.map(([, name, { recommended }]) => [name, metadata.get(`general.sampling.${recommended}`)]),
  );

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
  for (const [option, name, row] of RECOMMENDED) {
    const value = config[name];
    if (value == null || (draws === false && option !== 'repetitionPenalty')) continue;
    if (isWithin(value, row.range!)) sampling[option] = value;
    else onWarning?.(`${file}: ${name} is ${show(value)}; expected ${rangeText(row.range!)}. It is ignored`);
  }
  return sampling;
}
