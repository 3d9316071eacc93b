import { didYouMean, usageError } from '../../src/base/errors.js';
import { LOAD_ROWS } from '../../src/engine/contracts/options/load_rows.js';
import { isSwitch, type OptionRow, readOption, rowsAt } from '../../src/engine/contracts/options/row.js';
import { DEFAULT_MAX_TOKENS } from '../../src/engine/contracts/options/sampling_rows.js';
import type { LoadOptions } from '../../src/index.js';

/** Degrees of parallelism. */
export const DEGREES: readonly string[] = [
  'tensor',
  'token',
  'sequence',
  'pipeline',
  'data',
] satisfies (keyof LoadOptions)[];

/** What the page's address may say beside the options of a load. */
const OWN: Readonly<Record<string, OptionRow>> = {
  model: { help: 'URL of a model folder', default: 'the embedded model' },
  maxTokens: { help: 'tokens of an answer', default: DEFAULT_MAX_TOKENS, range: { integer: true, low: 1 } },
};
const PARAMETERS = [...rowsAt(OWN, 'page'), ...rowsAt(LOAD_ROWS, 'page')];

export interface PageParameters {
  readonly model: string | undefined;
  readonly maxTokens: number;
  /** Values that only the library can judge are passed on as they are. */
  readonly load: LoadOptions;
}

/** @throws SplitkvError `usage` for an unknown or repeated parameter, or a value that can't be read. */
export function readParameters(query: URLSearchParams): PageParameters {
  const names = PARAMETERS.map(([own]) => own);
  for (const name of query.keys()) {
    if (!names.includes(name)) {
      throw usageError(`unknown parameter '${name}' in the address.${didYouMean(name, names)}`);
    }
    if (query.getAll(name).length > 1) throw usageError(`${name} is twice in the address; give it once`);
  }
  const given = PARAMETERS.flatMap(([own, name, row]) => {
    const text = query.get(own);
    return text === null ? [] : [[name, valueOf(row, text, `${own}=${text} in the address`)]];
  });
  const {
    model,
    maxTokens = DEFAULT_MAX_TOKENS,
    ...load
  } = Object.fromEntries(given) as LoadOptions & {
    readonly model?: string;
    readonly maxTokens?: number;
  };
  return { model, maxTokens, load };
}

function valueOf(row: OptionRow, text: string, given: string): unknown {
  if (!isSwitch(row)) return readOption(row, text, given);
  if (text !== '1' && text !== '0') throw usageError(`${given}: expected 1 (${row.help}) or 0`);
  return text === '1';
}
