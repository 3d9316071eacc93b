import * as z from 'zod/mini';
import { callOf, type CompletionCall } from './completion_call.js';
import { commonFields, optionalInteger, parseFields } from './fields.js';

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
});

/** Reads the body of a request to /v1/completions. @throws ApiError 400 */
export function parseTextRequest(body: unknown): CompletionCall {
  const fields = parseFields(schema, body);
  const { prompt } = fields;
  const isOne = (given: typeof prompt): given is string | number[] =>
    typeof given === 'string' || typeof given[0] === 'number';
  return callOf(fields, isOne(prompt) ? [prompt] : prompt, {
    promptField: 'prompt',
    maxTokens: fields.max_tokens ?? DEFAULT_MAX_TOKENS,
    logprobs: fields.logprobs ?? undefined,
  });
}
