import * as z from 'zod/mini';
import { isObject } from '../../base/json.js';
import { ApiError, badRequest } from '../api_error.js';
import { callOf, type CompletionCall } from './completion_call.js';
import {
  checkLength,
  commonFields,
  flag,
  type IgnoredField,
  mostTokens,
  optionalInteger,
  parseFields,
} from './fields.js';

/** As OpenAI's. */
const DEFAULT_MAX_TOKENS = 16;
const MAX_PROMPTS = 128;

const expected = (most: number): string =>
  `a text, a list of token ids, or a list of at most ${most} of either, none of them empty`;

/** A text, token ids, or a list of at most `most` of either. */
export const textsField = (most: number) => {
  const what = expected(most);
  const text = z.string(what).check(z.minLength(1, what));
  const ids = z.array(z.int(what).check(z.minimum(0, what)), what).check(z.minLength(1, what));
  const several = z.array(z.union([text, ids])).check(z.minLength(1, what), z.maxLength(most, what));
  return z.union([text, ids, several], what);
};
type Texts = z.infer<ReturnType<typeof textsField>>;

/** Each of the texts by itself. */
export const textsOf = (given: Texts): (string | number[])[] => {
  const isOne = (texts: Texts): texts is string | number[] => typeof texts === 'string' || typeof texts[0] === 'number';
  return isOne(given) ? [given] : given;
};

const schema = z.looseObject({
  ...commonFields,
  n_predict: mostTokens,
  prompt: textsField(MAX_PROMPTS),
  logprobs: optionalInteger(0, 20),
  echo: flag,
});

/**
 * Reads the body of a request to /v1/completions.
 * @param contextLength tokens that a prompt and its answer may have: longer lists of ids are refused before they are looked at
 * @throws ApiError 400
 */
export function parseTextRequest(body: unknown, contextLength: number): CompletionCall {
  checkTexts(body, 'prompt', MAX_PROMPTS, contextLength);
  const ignored: IgnoredField[] = [];
  const fields = parseFields('completions', schema, body, ignored);
  const { prompt, echo } = fields;
  const asked = fields.max_tokens ?? fields.n_predict;
  if (asked === 0 && !echo) {
    throw badRequest(
      'max_tokens is 0; expected at least 1, -1 for none, or "echo": true, which gives the prompt itself',
      'max_tokens',
    );
  }
  return callOf(fields, textsOf(prompt), {
    promptField: 'prompt',
    ignored,
    maxTokens: asked === -1 ? contextLength : (asked ?? DEFAULT_MAX_TOKENS),
    logprobs: fields.logprobs ?? undefined,
    echo: echo ?? undefined,
  });
}

/** Before they are parsed: lists that are too long are refused at once. @throws ApiError 400 */
export function checkTexts(body: unknown, name: 'prompt' | 'input', most: number, contextLength: number): void {
  const texts = isObject(body) ? body[name] : undefined;
  if (!Array.isArray(texts)) return;
  const lists: readonly unknown[] = typeof texts[0] === 'number' ? [texts] : texts;
  checkLength(lists, most, name, expected(most));
  for (const list of lists) {
    if (!Array.isArray(list) || list.length <= contextLength) continue;
    const message = `the prompt has ${list.length} tokens; the context holds ${contextLength}: shorten the prompt`;
    throw new ApiError(400, message, { code: 'context_length_exceeded', param: name });
  }
}
