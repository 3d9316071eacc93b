import * as z from 'zod/mini';
import { isObject } from '../../base/json.js';
import { ApiError, badRequest } from '../api_error.js';
import { callOf, type CompletionCall } from './completion_call.js';
import { checkLength, commonFields, flag, type IgnoredField, optionalInteger, parseFields } from './fields.js';

/** As OpenAI's. */
const DEFAULT_MAX_TOKENS = 16;
const MAX_PROMPTS = 128;

const PROMPT = `a text, a list of token ids, or a list of at most ${MAX_PROMPTS} of either, none of them empty`;
const text = z.string(PROMPT).check(z.minLength(1, PROMPT));
const ids = z.array(z.int(PROMPT).check(z.minimum(0, PROMPT)), PROMPT).check(z.minLength(1, PROMPT));
const several = z.array(z.union([text, ids])).check(z.minLength(1, PROMPT), z.maxLength(MAX_PROMPTS, PROMPT));
const schema = z.looseObject({
  ...commonFields,
  prompt: z.union([text, ids, several], PROMPT),
  logprobs: optionalInteger(0, 20),
  echo: flag,
});

/**
 * Reads the body of a request to /v1/completions.
 * @param contextLength tokens that a prompt and its answer may have: longer lists of ids are refused before they are looked at
 * @throws ApiError 400
 */
export function parseTextRequest(body: unknown, contextLength: number): CompletionCall {
  if (isObject(body) && Array.isArray(body.prompt)) checkList(body.prompt, contextLength);
  const ignored: IgnoredField[] = [];
  const fields = parseFields(schema, body, ignored);
  const { prompt, max_tokens: asked, echo } = fields;
  if (asked === 0 && !echo) {
    throw badRequest(
      'max_tokens is 0; expected at least 1, -1 for none, or "echo": true, which gives the prompt itself',
      'max_tokens',
    );
  }
  const isOne = (given: typeof prompt): given is string | number[] =>
    typeof given === 'string' || typeof given[0] === 'number';
  return callOf(fields, isOne(prompt) ? [prompt] : prompt, {
    promptField: 'prompt',
    ignored,
    maxTokens: asked === -1 ? contextLength : (asked ?? DEFAULT_MAX_TOKENS),
    logprobs: fields.logprobs ?? undefined,
    echo: echo ?? undefined,
  });
}

function checkList(prompt: readonly unknown[], contextLength: number): void {
  const lists = typeof prompt[0] === 'number' ? [prompt] : prompt;
  checkLength(lists, MAX_PROMPTS, 'prompt', PROMPT);
  for (const list of lists) {
    if (!Array.isArray(list) || list.length <= contextLength) continue;
    const message = `the prompt has ${list.length} tokens; the context holds ${contextLength}: shorten the prompt`;
    throw new ApiError(400, message, { code: 'context_length_exceeded', param: 'prompt' });
  }
}
