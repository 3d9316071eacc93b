/**
 * Room: llama.cpp's own API over the core that answers texts: what bodies of /completion, /infill and /embedding mean
 * (here), and how answers are told (native_writer.ts).
 */

import * as z from 'zod/mini';
import { isObject } from '../../base/json.js';
import { isId } from '../../engine/serving/prompt_tokens.js';
import type { FillPrompt } from '../../index.js';
import { badRequest } from '../api_error.js';
import {
  callOf,
  checkLength,
  commonFields,
  type CompletionCall,
  flag,
  mostTokens,
  optionalInteger,
  parseFields,
} from '../requests/fields.js';
import {
  checkTexts,
  type EmbeddingCall,
  embeddingCall,
  MAX_INPUTS,
  MAX_PROMPTS,
  textsField,
  textsOf,
} from '../requests/text_request.js';

export interface NativeCall extends CompletionCall {
  /** The prompt came in a list, or has several answers: they come in a list. */
  readonly isList: boolean;
  /** What is told of the request, in llama.cpp's names. */
  readonly told: object;
  /** A whole answer has its tokens, as each event of a stream does. */
  readonly tellsTokens: boolean;
  /** Of the answer these alone are told, such as `content` and `timings/predicted_n`; none: all. */
  readonly fields?: readonly string[];
}

const common = {
  ...commonFields,
  n_cmpl: commonFields.n,
  n_predict: mostTokens,
  n_probs: optionalInteger(0, 20),
  return_progress: flag,
  return_tokens: flag,
};
const NAMES = 'a list of fields, such as ["content", "timings/predicted_n"]';
const completion = z.looseObject({
  ...common,
  prompt: textsField(MAX_PROMPTS),
  response_fields: z.nullish(z.array(z.string(NAMES), NAMES)),
});
const EXTRA = 'a list of files such as {"filename": "a.py", "text": "..."}';
const infill = z.looseObject({
  ...common,
  prompt: z.nullish(z.string('a text')),
  input_prefix: z.string('a text'),
  input_suffix: z.string('a text'),
  input_extra: z.nullish(
    z.array(z.looseObject({ filename: z.nullish(z.string('a name')), text: z.string('a text') }, EXTRA), EXTRA),
  ),
});

function nativeCall(
  fields: z.infer<z.ZodMiniObject<typeof common>>,
  prompts: CompletionCall['prompts'],
  own: Pick<CompletionCall, 'ignored'> & Pick<NativeCall, 'isList'>,
  room: number,
): NativeCall {
  const { n_probs: top } = fields;
  const most = fields.n_predict ?? fields.max_tokens ?? -1;
  if (most === 0) throw badRequest('n_predict is 0; expected at least 1, or -1 for none', 'n_predict');
  const n = fields.n_cmpl ?? fields.n ?? 1;
  const call = callOf({ ...fields, n }, prompts, {
    promptField: 'prompt',
    ignored: own.ignored,
    maxTokens: most === -1 ? room : most,
    logprobs: top == null || top === 0 ? undefined : top,
    progress: fields.return_progress,
  });
  return {
    ...call,
    tellsTokens: fields.return_tokens ?? false,
    isList: own.isList || n > 1,
    told: { n_predict: most, n_probs: top ?? 0, ...toldOf(call) },
  };
}

/** What is told of the request, in llama.cpp's names. */
function toldOf({ options, stream }: CompletionCall): object {
  return {
    seed: options.seed ?? -1,
    temperature: options.temperature ?? 0,
    top_k: options.topK ?? 0,
    top_p: options.topP ?? 1,
    min_p: options.minP ?? 0,
    repeat_penalty: options.repetitionPenalty ?? 1,
    presence_penalty: options.presencePenalty ?? 0,
    frequency_penalty: options.frequencyPenalty ?? 0,
    stop: [options.stop ?? []].flat(),
    ignore_eos: options.ignoreEos ?? false,
    adaptive_target: -1,
    adaptive_decay: 0,
    stream,
    grammar: options.grammar ?? '',
    logit_bias: Object.entries(options.logitBias ?? {}).map(([key, bias]) => ({
      token: isId(key) ? Number(key) : key,
      bias,
    })),
  };
}

/** Reads the body of a request to /completion. @param room tokens of the context @throws ApiError 400 */
export function parseNativeText(body: unknown, room: number): NativeCall {
  checkTexts(body, 'prompt', MAX_PROMPTS, room);
  const { fields, ignored } = parseFields('llamaCpp', completion, body);
  const prompts = textsOf(fields.prompt);
  const call = nativeCall(
    fields,
    prompts,
    { ignored, isList: Array.isArray(fields.prompt) && prompts[0] !== fields.prompt },
    room,
  );
  return { ...call, fields: fields.response_fields ?? [] };
}

/** Reads the body of a request to /infill: `prompt` is what was written behind the prefix. @throws ApiError 400 */
export function parseInfill(body: unknown, room: number): NativeCall {
  if (isObject(body) && Array.isArray(body.input_extra)) checkLength(body.input_extra, room, 'input_extra', EXTRA);
  const { fields, ignored } = parseFields('llamaCpp', infill, body);
  const { input_prefix: before, input_suffix: suffix, input_extra: extra, prompt } = fields;
  const files = (extra ?? []).map(({ filename, text }) => ({ name: filename ?? 'tmp', text }));
  const asked: FillPrompt = { prefix: before + (prompt ?? ''), suffix, files };
  return nativeCall(fields, [asked], { ignored, isList: false }, room);
}

const embedding = z.looseObject({
  model: commonFields.model,
  content: z.nullish(textsField(MAX_INPUTS)),
  input: z.nullish(textsField(MAX_INPUTS)),
});

/** Reads the body of a request to /embedding. @throws ApiError 400 */
export function parseNativeEmbedding(body: unknown): EmbeddingCall {
  const { fields, ignored } = parseFields('embeddings', embedding, body);
  const texts = fields.content ?? fields.input;
  if (texts == null) throw badRequest('content is missing; expected a text, or a list of texts', 'content');
  return embeddingCall(fields, textsOf(texts), ignored);
}
