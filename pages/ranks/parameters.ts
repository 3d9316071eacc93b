import { didYouMean, usageError } from '../../src/base/errors.js';
import type { KvType, LoadOptions, WeightType } from '../../src/index.js';
import { parseAttentionDp, parseMemory, parseRanks } from '../../src/app/shared/rank_options.js';

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
  plan: 'auto, tp, sp, tp+sp, pp, ep, token, adp, products such as pp x tp, arranged or pp x arranged (heads by what each keeps), or the URL of a plan or an arrangement (.json)',
  copies: 'plan arranged: copies of heads beyond the first, at most so many a layer',
  'kv-budget': "part of a prompt's KV cache that is kept, such as 0.2",
  'kv-profile':
    'URL of a profile of what heads keep, which plan arranged arranges by; default: measured by the first load',
  tensor:
    'in place of ranks and plan, degrees of parallelism, whose product is the ranks: with different heads and columns',
  token: 'ranks that sequences are shared out to, for each with weights',
  sequence: 'ranks that split the chunks of each sequence',
  pipeline: 'stages of layers',
  data: 'ranks, or groups of ranks, with requests of their own',
  virtual: '1: all ranks on one device',
  memory: 'of a rank: 500MB, 1.5GB, 300MiB; or one for each with commas between',
  requests: 'generations that may run at once',
  attention_dp_config: 'with plan adp, its products, or token: as in load, in JSON, such as {"enable_balance": false}',
} as const;

type Name = keyof typeof PARAMETERS;

/** Degrees of parallelism. */
export const DEGREES = ['tensor', 'token', 'sequence', 'pipeline', 'data'] as const satisfies Name[];

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
  const [tensor, token, sequence, pipeline, data] = DEGREES.map((name) => read(name, wholeNumber));
  const virtualRanks = read('virtual', onOrOff('all ranks on one device'));
  const tune = read('tune', onOrOff('time kernels at load'));
  const memory = read('memory', parseMemory);
  const requests = read('requests', wholeNumber);
  const attentionDpConfig = read('attention_dp_config', parseAttentionDp);
  const copies = read('copies', (text, given) => (text === '0' ? 0 : wholeNumber(text, given)));
  const [kvBudget, kvProfile] = [read('kv-budget', part), text('kv-profile')];
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
      ...(tensor !== undefined && { tensor }),
      ...(token !== undefined && { token }),
      ...(sequence !== undefined && { sequence }),
      ...(pipeline !== undefined && { pipeline }),
      ...(data !== undefined && { data }),
      ...(virtualRanks !== undefined && { virtualRanks }),
      ...(memory !== undefined && { memory }),
      ...(requests !== undefined && { requests }),
      ...(attentionDpConfig !== undefined && { attentionDpConfig }),
      ...(copies !== undefined && { copies }),
      ...(kvBudget !== undefined && { kvBudget }),
      ...(kvProfile !== undefined && { kvProfile }),
    },
  };
}

function wholeNumber(text: string, given: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw usageError(`${given}: expected a whole number above 0`);
  return Number(text);
}

function part(text: string, given: string): number {
  if (!/^(0?\.\d+|1(\.0+)?)$/.test(text))
    throw usageError(`${given}: expected a part above 0 and at most 1, such as 0.2`);
  return Number(text);
}

const onOrOff =
  (what: string) =>
  (text: string, given: string): boolean => {
    if (text !== '1' && text !== '0') throw usageError(`${given}: expected 1 (${what}) or 0`);
    return text === '1';
  };
