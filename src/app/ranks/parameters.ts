import { didYouMean, usageError } from '../../base/errors.js';
import type { KvType, LoadOptions, WeightType } from '../../index.js';
import { parseMemory, parseRanks } from './rank_options.js';

/** Every parameter of the demo page's address, with what it is. */
export const PARAMETERS = {
  model: 'URL of a model folder; default: the embedded model',
  weights: 'f32, f16, q8, q4',
  kv: 'auto, f32, f16, q8',
  variants: 'hardware, software: which variants of kernels run',
  tune: "0: a GPU's kernels aren't timed at load to choose among plans of equal bits",
  precision: 'exact, fast: how prompts are multiplied on GPUs',
  context: 'tokens of the context',
  max_tokens: 'tokens of an answer',
  ranks: 'how many, or an adapter for each with commas between',
  plan: 'auto, tp, sp, tp+sp, pp, ep, token, adp, products such as pp x tp, or the URL of a plan or an arrangement (.json)',
  virtual: '1: all ranks on one device',
  memory: 'of a rank: 500MB, 1.5GB, 300MiB; or one for each with commas between',
  requests: 'generations that may run at once',
} as const;

type Name = keyof typeof PARAMETERS;

export interface PageParameters {
  readonly model: string | undefined;
  readonly maxTokens: number;
  /** Values that only the library can judge are passed on as they are. */
  readonly load: LoadOptions;
}

const DEFAULT_MAX_TOKENS = 256;

/** @throws SplitkvError `usage` for an unknown or repeated parameter, or a value that can't be read. */
export function readParameters(query: URLSearchParams): PageParameters {
  const names = Object.keys(PARAMETERS);
  for (const name of query.keys()) {
    if (!names.includes(name)) {
      throw usageError(`unknown parameter '${name}' in the address.${didYouMean(name, names)}`);
    }
    if (query.getAll(name).length > 1) throw usageError(`${name} is twice in the address; give it once`);
  }
  const text = (name: Name): string | undefined => query.get(name) ?? undefined;
  const read = <T>(name: Name, parse: (text: string, given: string) => T): T | undefined => {
    const value = text(name);
    return value === undefined ? undefined : parse(value, `${name}=${value} in the address`);
  };
  const [weights, kv, plan] = [text('weights'), text('kv'), text('plan')];
  const [variants, precision] = [text('variants'), text('precision')];
  const contextLength = read('context', wholeNumber);
  const ranks = read('ranks', parseRanks);
  const virtualRanks = read('virtual', onOrOff('all ranks on one device'));
  const tune = read('tune', onOrOff('time kernels at load'));
  const memory = read('memory', parseMemory);
  const requests = read('requests', wholeNumber);
  return {
    model: text('model'),
    maxTokens: read('max_tokens', wholeNumber) ?? DEFAULT_MAX_TOKENS,
    load: {
      ...(weights !== undefined && { weights: weights as WeightType }),
      ...(kv !== undefined && { kv: kv as KvType | 'auto' }),
      ...(variants !== undefined && { variants: variants as 'hardware' | 'software' }),
      ...(tune !== undefined && { tune }),
      ...(precision !== undefined && { precision: precision as 'exact' | 'fast' }),
      ...(contextLength !== undefined && { contextLength }),
      ...(ranks !== undefined && { ranks }),
      ...(plan !== undefined && { plan }),
      ...(virtualRanks !== undefined && { virtualRanks }),
      ...(memory !== undefined && { memory }),
      ...(requests !== undefined && { requests }),
    },
  };
}

function wholeNumber(text: string, given: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw usageError(`${given}: expected a whole number above 0`);
  return Number(text);
}

const onOrOff =
  (what: string) =>
  (text: string, given: string): boolean => {
    if (text !== '1' && text !== '0') throw usageError(`${given}: expected 1 (${what}) or 0`);
    return text === '1';
  };
