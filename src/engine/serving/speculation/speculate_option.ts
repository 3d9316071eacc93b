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
  const isAlone = speculate === 'draft' || speculate === 'mtp';
  const repeats = isAlone ? () => [] : (prompt: readonly number[]) => [new Ngrams(prompt)];
  return new Speculation({
    drafters: (prompt, rows) => [new ModelDrafter(draft, prompt, rows), ...repeats(prompt)],
    rows: () => draft.newRows(),
    draft,
  });
}

/** Whether a request's tokens are drafted. @throws SplitkvError `usage` where it asks for what the load didn't */
export function wantsDrafts({ options }: Pick<Engine, 'options'>, speculate: Speculate): boolean {
  const { speculation } = options;
  const same = `speculate '${speculate}'`;
  const { draft } = speculation?.options ?? {};
  const isThere =
    speculate === 'ngram' ? speculation : speculate === 'draft' ? draft?.isHead === false : draft?.isHead === true;
  if (speculate && speculate !== 'auto' && speculate !== 'off' && !isThere)
    throw usageError(`${same}: the model was loaded without it; load or serve it with ${same}`);
  return speculate !== 'off';
}
