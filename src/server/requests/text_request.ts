import * as z from 'zod/mini';
import { isObject, show } from '../../base/json.js';
import { contextFullError } from '../../base/errors.js';
import { GIVEN_ID } from '../../base/kv_units.js';
import { defined } from '../../base/options.js';
import { badRequest, toApiError } from '../api_error.js';
import {
  callOf,
  checkLength,
  commonFields,
  type CompletionCall,
  flag,
  type IgnoredField,
  mostTokens,
  optionalInteger,
  parseFields,
} from './fields.js';
import type { EmbedOptions, EmbedResult, Prompt, RerankOptions, RerankResult } from '../../index.js';

/** As OpenAI's. */
const DEFAULT_MAX_TOKENS = 16;
export const MAX_PROMPTS = 128;
/** As OpenAI's. */
const MAX_BEST_OF = 20;

const expected = (most: number): string =>
  `a text, a list of token ids, or a list of at most ${most} of either, no list empty`;

const isIds = (list: readonly unknown[]): boolean => list.some((part) => typeof part === 'number');
const isPart = (part: unknown): boolean =>
  typeof part === 'string' || (Number.isSafeInteger(part) && Number(part) >= 0);

/** A text, token ids, or a list of at most `most` of either. As with llama.cpp, texts may be among ids, and a text in an object. */
export const textsField = (most: number, what = expected(most)) => {
  const text = z.string(what);
  const object = z.strictObject({ prompt_string: text }, what);
  const ids = z.custom<(number | string)[]>(
    (list) => Array.isArray(list) && isIds(list) && (list as unknown[]).every(isPart),
    what,
  );
  const several = z.array(z.union([text, ids, object])).check(z.minLength(1, what), z.maxLength(most, what));
  return z.union([text, ids, object, several], what);
};
type Text = string | (number | string)[];

/** @throws ApiError 400 for ids of rows of images or recordings: they may be another client's */
export const textsOf = (given: z.infer<ReturnType<typeof textsField>>): Text[] => {
  const row = [given].flat(2).find((part) => typeof part === 'number' && part >= GIVEN_ID);
  if (row !== undefined) throw badRequest(`token ${show(row)} is of no vocabulary; images are parts of messages`);
  const all = Array.isArray(given) && !isIds(given) ? (given as (Text | { prompt_string: string })[]) : [given as Text];
  return all.map((each) => (typeof each === 'object' && 'prompt_string' in each ? each.prompt_string : each));
};

const completion = {
  ...commonFields,
  n_predict: mostTokens,
  logprobs: optionalInteger(0, 20),
  echo: flag,
  best_of: optionalInteger(1, MAX_BEST_OF),
  suffix: z.nullish(z.string('a text')),
  return_progress: flag,
};
const schema = z.looseObject({ ...completion, prompt: textsField(MAX_PROMPTS) });
const filling = z.looseObject({ ...completion, prompt: z.string('a text: suffix says what follows it') });

/**
 * Reads the body of a request to /v1/completions.
 * @param contextLength tokens that a prompt and its answer may have: longer lists of ids are refused before they are looked at
 * @throws ApiError 400
 */
export function parseTextRequest(body: unknown, contextLength: number): CompletionCall {
  checkTexts(body, 'prompt', MAX_PROMPTS, contextLength);
  const fills = isObject(body) && typeof body.suffix === 'string' && body.suffix !== '';
  const { fields, ignored } = fills
    ? parseFields('completions', filling, body)
    : parseFields('completions', schema, body);
  const { prompt, echo, best_of: drawn, suffix } = fields;
  const picks = picksOf(fields);
  if (fills && echo) throw badRequest('echo and suffix: give one of them', 'echo');
  const asked = fields.max_tokens ?? fields.n_predict;
  if (asked === 0 && !echo) {
    throw badRequest(
      'max_tokens is 0; expected at least 1, -1 for none, or "echo": true, which gives the prompt itself',
      'max_tokens',
    );
  }
  const prompts = fills ? [{ prefix: prompt as string, suffix: suffix! }] : textsOf(prompt);
  const call = callOf({ ...fields, n: drawn ?? fields.n }, prompts, {
    promptField: 'prompt',
    ignored,
    maxTokens: asked === -1 ? contextLength : (asked ?? DEFAULT_MAX_TOKENS),
    logprobs: fields.logprobs ?? (picks ? 0 : undefined),
    echo: echo ?? undefined,
    progress: fields.return_progress,
  });
  return picks ? { ...call, likeliest: { n: fields.n ?? 1, logprobs: fields.logprobs != null } } : call;
}

/** Whether more answers are drawn than told. @throws ApiError 400 */
function picksOf({ n, best_of: drawn, stream }: Pick<z.infer<typeof schema>, 'n' | 'best_of' | 'stream'>): boolean {
  const told = n ?? 1;
  if (drawn == null || drawn === told) return false;
  if (drawn < told) throw badRequest(`best_of is ${drawn} and n ${told}: expected at least as many`, 'best_of');
  if (stream) throw badRequest('best_of needs whole answers: leave stream out', 'best_of');
  return true;
}

/** Before they are parsed: lists that are too long are refused at once. @throws ApiError 400 */
export function checkTexts(body: unknown, name: 'prompt' | 'input', most: number, contextLength: number): void {
  const texts = isObject(body) ? body[name] : undefined;
  if (!Array.isArray(texts)) return;
  const lists: readonly unknown[] = isIds(texts) ? [texts] : texts;
  checkLength(lists, most, name, expected(most));
  for (const list of lists) {
    if (!Array.isArray(list) || list.length <= contextLength) continue;
    throw toApiError(contextFullError(list.length, contextLength), name);
  }
}

/** As OpenAI's. */
export const MAX_INPUTS = 2048;

export interface EmbeddingCall {
  readonly model: string | undefined;
  readonly prompts: readonly Prompt[];
  readonly promptField: 'input';
  readonly options: EmbedOptions;
  readonly base64: boolean;
  readonly ignored: readonly IgnoredField[];
}

const TRUNCATE = 'true or false, "END" or "NONE"';
/** As in text-embeddings-inference and Jina's API, or Cohere's. */
const truncate = z.nullish(z.union([z.boolean(), z.enum(['END', 'NONE'])], TRUNCATE));
const FORMAT = '"float" or "base64"';
const POOLING = '"mean", "last" or "cls"';
const embeddings = z.looseObject({
  model: commonFields.model,
  input: textsField(MAX_INPUTS),
  encoding_format: z.nullish(z.enum(['float', 'base64'], FORMAT)),
  dimensions: optionalInteger(1),
  // Not OpenAI's.
  truncate,
  pooling: z.nullish(z.enum(['mean', 'last', 'cls'], POOLING)),
  prompt: z.nullish(z.string()),
  prompt_name: z.nullish(z.string()),
});

/**
 * Reads the body of a request to /v1/embeddings.
 * @param contextLength tokens that each text may have
 * @throws ApiError 400
 */
export function parseEmbeddingRequest(body: unknown, contextLength: number): EmbeddingCall {
  checkTexts(body, 'input', MAX_INPUTS, contextLength);
  const { fields, ignored } = parseFields('embeddings', embeddings, body);
  return embeddingCall(fields, textsOf(fields.input), ignored);
}

/** Undefined where it doesn't say. */
const isCut = (field: z.infer<typeof truncate>): boolean | undefined =>
  field == null ? undefined : field === true || field === 'END';

type EmbeddingField = 'model' | 'dimensions' | 'pooling' | 'prompt' | 'prompt_name' | 'encoding_format' | 'truncate';
type EmbeddingFields = Partial<Pick<z.infer<typeof embeddings>, EmbeddingField>>;

export const embeddingCall = (
  fields: EmbeddingFields,
  prompts: readonly Prompt[],
  ignored: readonly IgnoredField[],
): EmbeddingCall => ({
  model: fields.model ?? undefined,
  prompts,
  promptField: 'input',
  options: defined({
    pooling: fields.pooling ?? undefined,
    dimensions: fields.dimensions ?? undefined,
    prompt: fields.prompt ?? undefined,
    promptName: fields.prompt_name ?? undefined,
    truncate: isCut(fields.truncate),
  }),
  base64: fields.encoding_format === 'base64',
  ignored,
});

/** OpenAI's answer: numbers, or the bytes of little-endian f32 as base64. */
export function embeddingAnswer(model: string, base64: boolean, { embeddings, prompt_tokens }: EmbedResult): object {
  const written = ({ buffer, byteOffset, byteLength }: Float32Array): string =>
    Buffer.from(buffer, byteOffset, byteLength).toString('base64');
  return {
    object: 'list',
    data: embeddings.map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: base64 ? written(vector) : [...vector],
    })),
    model,
    usage: { prompt_tokens, total_tokens: prompt_tokens },
  };
}

/** As Jina's and Cohere's. */
const MAX_DOCUMENTS = 1000;

export interface RerankCall {
  readonly model: string | undefined;
  readonly query: string;
  readonly documents: readonly string[];
  readonly options: Pick<RerankOptions, 'topN' | 'truncate'>;
  readonly returnDocuments: boolean;
  /** As Text Embeddings Inference asks: `texts`, answered with a plain list. */
  readonly isPlain: boolean;
  readonly ignored: readonly IgnoredField[];
}

const DOCUMENTS = `a list of at most ${MAX_DOCUMENTS} texts, none of them empty`;
const documentText = z.string(DOCUMENTS).check(z.minLength(1, DOCUMENTS));
const documentsField = z
  .array(z.union([documentText, z.looseObject({ text: documentText })], DOCUMENTS), DOCUMENTS)
  .check(z.minLength(1, DOCUMENTS), z.maxLength(MAX_DOCUMENTS, DOCUMENTS));
const reranking = z.looseObject({
  model: commonFields.model,
  query: z.string('a text').check(z.minLength(1, 'a text that is not empty')),
  documents: z.nullish(documentsField),
  texts: z.nullish(documentsField),
  top_n: optionalInteger(1),
  truncate,
  return_documents: flag,
});

/** Reads the body of a request to /v1/rerank. @throws ApiError 400 */
export function parseRerankRequest(body: unknown): RerankCall {
  for (const name of ['documents', 'texts'] as const) {
    if (isObject(body) && Array.isArray(body[name])) checkLength(body[name], MAX_DOCUMENTS, name, DOCUMENTS);
  }
  const { fields, ignored } = parseFields('rerank', reranking, body);
  const given = fields.documents ?? fields.texts;
  if (given == null) throw badRequest(`documents is missing; expected ${DOCUMENTS}`, 'documents');
  if (fields.documents && fields.texts) throw badRequest('documents and texts: give one of them', 'texts');
  return {
    model: fields.model ?? undefined,
    query: fields.query,
    documents: given.map((document) => (typeof document === 'string' ? document : document.text)),
    options: defined({ topN: fields.top_n, truncate: isCut(fields.truncate) }),
    returnDocuments: fields.return_documents ?? false,
    isPlain: fields.documents == null,
    ignored,
  };
}

/** Jina's answer, and Cohere's. */
export function rerankAnswer(
  model: string,
  { documents, returnDocuments, isPlain }: RerankCall,
  { results, prompt_tokens }: RerankResult,
): object {
  if (isPlain) return results.map(({ index, relevance_score: score }) => ({ index, score }));
  return {
    object: 'list',
    model,
    results: results.map((result) => ({
      ...result,
      ...(returnDocuments && { document: { text: documents[result.index] } }),
    })),
    usage: { prompt_tokens, total_tokens: prompt_tokens },
  };
}
