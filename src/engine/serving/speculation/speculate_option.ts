import { usageError } from '../../../base/errors.js';
import type { LoadOptions } from '../../contracts/api.js';
import type { Engine } from '../engine.js';
import type { DraftModel } from './draft_model.js';
import type { Speculation } from './speculation.js';

type Speculate = LoadOptions['speculate'];

/** What a load's option makes of an engine; loaded where it's wanted. @param draft that was loaded beside the model */
export async function speculationOf(speculate: Speculate, draft?: DraftModel): Promise<Speculation | undefined> {
  if (speculate === 'off') return undefined;
  const [{ Speculation }, { Ngrams }] = await Promise.all([import('./speculation.js'), import('./ngrams.js')]);
  if (!draft) return new Speculation({ drafters: (prompt) => [new Ngrams(prompt)] });
  const { ModelDrafter } = await import('./draft_model.js');
  const repeats = speculate === 'draft' ? () => [] : (prompt: readonly number[]) => [new Ngrams(prompt)];
  return new Speculation({ drafters: (prompt) => [new ModelDrafter(draft, prompt), ...repeats(prompt)], draft });
}

/** Whether a request's tokens are drafted. @throws SplitkvError `usage` where it asks for what the load didn't */
export function wantsDrafts({ options }: Pick<Engine, 'options'>, speculate: Speculate): boolean {
  const { speculation } = options;
  const same = `speculate '${speculate}'`;
  if ((speculate === 'ngram' && !speculation) || (speculate === 'draft' && !speculation?.options.draft))
    throw usageError(`${same}: the model was loaded without it; load or serve it with ${same}`);
  return speculate !== 'off';
}
