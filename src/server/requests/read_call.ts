/**
 * Room: what a request's body means: its shape, checked by zod, and the call of the model that follows from it (here; in
 * threads, too: request_reader.ts). answer_request.ts answers calls of every API; `AnswerWriter` is what an API says of
 * answers. Those with choices are here, others in ../responses and ../messages.
 */

import {
  embedTokens,
  hasMedia,
  needTokenizer,
  type PromptReader,
  promptTokens,
  withTokens,
} from '../../engine/serving/prompt_tokens.js';
import { defined } from '../../base/options.js';
import type { ChatOptions } from '../../index.js';
import { badRequest, toApiError } from '../api_error.js';
import { parseChatRequest } from './chat_request.js';
import type { CompletionCall } from './fields.js';
import { type EmbeddingCall, parseEmbeddingRequest, parseRerankRequest, parseTextRequest } from './text_request.js';
import { parseInfill, parseNativeEmbedding, parseNativeText } from '../llama_cpp/native_request.js';
import { parseNamed, parseOllamaChat, parseOllamaEmbed, parseOllamaText } from '../ollama/ollama_request.js';
import { parseCountRequest, parseMessageRequest } from '../messages/message_request.js';
import { parseResponseRequest } from '../responses/response_request.js';
import {
  type DetokenizeCall,
  parseDetokenizeRequest,
  parseTokenizeRequest,
  type TokenizeCall,
} from './tokenize_request.js';

interface CallReader<Call> {
  parse(body: unknown, contextLength: number): Call;
  /** Does what takes long: tokenizing. */
  prepare(call: Call, reader: PromptReader): Call;
}

const prompted = <Call extends CompletionCall>(
  parse: CallReader<Call>['parse'],
  isCounted = false,
): CallReader<Call> => ({
  parse,
  prepare: (call, reader) => {
    const room = isCounted ? { ...reader, contextLength: Infinity } : reader;
    try {
      return {
        ...call,
        // Images and recordings are computed where the model is.
        prompts: call.prompts.map((prompt) =>
          hasMedia(prompt) ? prompt : promptTokens(prompt, room, call.options as ChatOptions),
        ),
        options: withTokens(call.prompts, call.options, reader),
      };
    } catch (error) {
      throw toApiError(error, call.promptField);
    }
  },
});

const embedded = (parse: CallReader<EmbeddingCall>['parse']): CallReader<EmbeddingCall> => ({
  parse,
  prepare: (call, reader) => {
    const { prompt, promptName, truncate, ...options } = call.options;
    const words = defined({ prompt, promptName, truncate });
    try {
      return { ...call, prompts: call.prompts.map((text) => embedTokens(text, reader, words)), options };
    } catch (error) {
      throw toApiError(error, call.promptField);
    }
  },
});

const tokenized = (parse: CallReader<TokenizeCall>['parse']): CallReader<TokenizeCall> => ({
  parse,
  prepare: (call, reader) => ({
    ...call,
    prompt: promptTokens(call.prompt, { ...reader, contextLength: Infinity }, call.options),
  }),
});

const asIs = <Call>(parse: CallReader<Call>['parse']): CallReader<Call> => ({ parse, prepare: (call) => call });

const READERS = {
  chat: prompted(parseChatRequest),
  text: prompted(parseTextRequest),
  embeddings: embedded(parseEmbeddingRequest),
  rerank: asIs(parseRerankRequest),
  responses: prompted(parseResponseRequest),
  messages: prompted(parseMessageRequest),
  countTokens: tokenized(parseCountRequest),
  countInput: prompted(parseResponseRequest, true),
  countChat: prompted(parseChatRequest, true),
  ollamaChat: prompted(parseOllamaChat),
  ollamaText: prompted(parseOllamaText),
  ollamaEmbed: embedded(parseOllamaEmbed),
  named: asIs(parseNamed),
  native: prompted(parseNativeText),
  infill: prompted(parseInfill),
  nativeEmbedding: embedded(parseNativeEmbedding),
  // Written by the model's side, which has the template.
  template: asIs(parseTokenizeRequest),
  tokenize: tokenized(parseTokenizeRequest),
  detokenize: {
    parse: parseDetokenizeRequest,
    prepare: (call: DetokenizeCall, reader: PromptReader): DetokenizeCall => ({
      ...call,
      text: needTokenizer(reader, 'detokenize').decode(call.tokens, { skipSpecial: false }),
    }),
  },
};
export type CallKind = keyof typeof READERS;
export type Calls = { readonly [Kind in CallKind]: ReturnType<(typeof READERS)[Kind]['parse']> };
const readerOf = <Kind extends CallKind>(kind: Kind) => READERS[kind] as unknown as CallReader<Calls[Kind]>;

/** A request's body as a call. @throws ApiError 400 */
export function readCall<Kind extends CallKind>(kind: Kind, body: Uint8Array, contextLength: number): Calls[Kind] {
  return readerOf(kind).parse(parseBody(body), contextLength);
}

/** The same with its prompts as token ids, or its token ids as text. @throws ApiError 400 */
export function readTokenCall<Kind extends CallKind>(kind: Kind, body: Uint8Array, reader: PromptReader): Calls[Kind] {
  const call = readCall(kind, body, reader.contextLength);
  try {
    return readerOf(kind).prepare(call, reader);
  } catch (error) {
    throw toApiError(error);
  }
}

/** Lists and objects in each other: what has more can't be sent between threads, and no field has as many. */
const MAX_DEPTH = 500;

/** @throws ApiError 400 for what is no JSON */
export function parseBody(body: Uint8Array): unknown {
  if (depthOf(body) > MAX_DEPTH) {
    throw badRequest(`the body is nested more than ${MAX_DEPTH} deep; no field takes lists and objects as deep`);
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (error) {
    const why = error instanceof SyntaxError ? error.message : 'it is not UTF-8';
    throw badRequest(`the body is not valid JSON: ${why}`);
  }
}

/** Of what may be JSON. */
function depthOf(body: Uint8Array): number {
  const [quote, backslash] = [0x22, 0x5c];
  let depth = 0;
  let most = 0;
  for (let at = 0, inText = false; at < body.length; at++) {
    const byte = body[at]!;
    if (byte === quote) inText = !inText;
    else if (inText) at += byte === backslash ? 1 : 0;
    else if (byte === 0x5b || byte === 0x7b) most = Math.max(most, ++depth);
    else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return most;
}
