import * as z from 'zod/mini';
import { isObject } from '../../base/json.js';
import { grouped } from '../../base/math.js';
import type { Prompt, TokenizeOptions } from '../../index.js';
import { badRequest } from '../api_error.js';
import {
  chatFields,
  chatOptionsOf,
  checkMessages,
  endingFields,
  endingOf,
  messagesField,
  messagesOf,
} from './chat_request.js';
import { checkLength, commonFields, flag, type IgnoredField, parseFields, tokenIds } from './fields.js';

/** Ids of one request to /detokenize. */
const MAX_IDS = 2 ** 20;
const IDS = `a list of at most ${grouped(MAX_IDS)} token ids`;

/** What both /tokenize and /detokenize read of a body. */
interface Asked {
  readonly model: string | undefined;
  readonly ignored: readonly IgnoredField[];
}

export interface TokenizeCall extends Asked {
  readonly prompt: Prompt;
  readonly options: TokenizeOptions;
  /** Tokens come with their texts. */
  readonly withPieces?: boolean;
}

export interface DetokenizeCall extends Asked {
  readonly tokens: readonly number[];
  /** Once they were decoded. */
  readonly text?: string;
}

const toTokenize = z.looseObject({
  model: commonFields.model,
  prompt: z.nullish(z.string('a text')),
  content: z.nullish(z.string('a text')),
  ...chatFields,
  messages: z.nullish(messagesField),
  add_special_tokens: flag,
  add_special: flag,
  with_pieces: flag,
  ...endingFields,
});
const toDetokenize = z.looseObject({
  model: commonFields.model,
  tokens: tokenIds(IDS),
});

/**
 * Reads the body of a request to /tokenize: vLLM's `prompt` or `messages`, or llama.cpp's `content`.
 * @param room messages that there may be
 * @throws ApiError 400
 */
export function parseTokenizeRequest(body: unknown, room: number): TokenizeCall {
  if (isObject(body) && Array.isArray(body.messages)) checkMessages(body.messages, room);
  const { fields, ignored } = parseFields('tokenize', toTokenize, body);
  const texts = [fields.prompt, fields.content].filter((text) => text != null);
  const messages = fields.messages && messagesOf(fields.messages, ignored);
  if (texts.length + (messages ? 1 : 0) !== 1) {
    throw badRequest('expected one of prompt (or content), a text, and messages', 'prompt');
  }
  return {
    model: fields.model ?? undefined,
    ignored,
    prompt: messages ? { messages, ...endingOf(fields, messages) } : texts[0]!,
    withPieces: fields.with_pieces ?? false,
    options: {
      // As llama.cpp and vLLM have it, each by its field.
      addSpecial: fields.add_special_tokens ?? fields.add_special ?? fields.content == null,
      ...chatOptionsOf(fields),
    },
  };
}

/** Reads the body of a request to /detokenize. @throws ApiError 400 */
export function parseDetokenizeRequest(body: unknown): DetokenizeCall {
  if (isObject(body) && Array.isArray(body.tokens)) checkLength(body.tokens, MAX_IDS, 'tokens', IDS);
  const { fields, ignored } = parseFields('tokenize', toDetokenize, body);
  return { model: fields.model ?? undefined, ignored, tokens: fields.tokens };
}
