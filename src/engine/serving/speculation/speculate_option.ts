import { usageError } from '../../../base/errors.js';
import type { LoadOptions } from '../../contracts/api.js';
import type { Engine } from '../engine.js';
import type { Speculation } from './speculation.js';

type Speculate = LoadOptions['speculate'];

/** What a load's option makes of an engine; loaded where it's wanted. */
export async function speculationOf(speculate: Speculate): Promise<Speculation | undefined> {
  if (speculate === 'off') return undefined;
  const [{ Speculation }, { Ngrams }] = await Promise.all([import('./speculation.js'), import('./ngrams.js')]);
  return new Speculation({ drafter: (prompt) => new Ngrams(prompt) });
}

/** Whether a request's tokens are drafted. @throws SplitkvError `usage` where it asks for what the load didn't */
export function wantsDrafts({ options }: Pick<Engine, 'options'>, speculate: Speculate): boolean {
  if (speculate === 'ngram' && !options.speculation) {
    throw usageError("speculate 'ngram': the model was loaded without it; load or serve it with speculate 'ngram'");
  }
  return speculate !== 'off';
}
