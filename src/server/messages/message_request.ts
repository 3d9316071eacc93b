/**
 * Room: Anthropic's Messages API over the core that answers chats: what a body means (here), and how an answer, or an
 * error, is told (message_writer.ts).
 */

import * as z from 'zod/mini';
import { isObject } from '../../base/json.js';
import type { ChatMessage } from '../../index.js';
import { badRequest } from '../api_error.js';
import { checkMessages } from '../requests/chat_request.js';
import { callOf, type CompletionCall } from '../requests/completion_call.js';
import {
  checkLength,
  commonFields,
  type IgnoredField,
  MAX_STOPS,
  optionalInteger,
  parseFields,
} from '../requests/fields.js';
import { textOfParts } from '../requests/text_parts.js';
import type { TokenizeCall } from '../requests/tokenize_request.js';

const MESSAGES = 'a list of messages such as {"role": "user", "content": "..."}, at least one';
const STOPS = `a list of at most ${MAX_STOPS} texts, none of them empty`;
const { n: _n, max_tokens: _max, stop: _stop, ...shared } = commonFields;
const conversation = {
  messages: z
    .array(
      z.looseObject(
        { role: z.enum(['user', 'assistant', 'system'], 'user, assistant'), content: z.unknown() },
        'a message',
      ),
      MESSAGES,
    )
    .check(z.minLength(1, MESSAGES)),
  system: z.nullish(z.unknown()),
  thinking: z.nullish(z.looseObject({ type: z.string('a type') }, 'an object such as {"type": "disabled"}')),
};
const schema = z.looseObject({
  ...shared,
  ...conversation,
  max_tokens: optionalInteger(1),
  stop_sequences: z.nullish(
    z.array(z.string(STOPS).check(z.minLength(1, STOPS)), STOPS).check(z.maxLength(MAX_STOPS, STOPS)),
  ),
});
const counted = z.looseObject({ model: commonFields.model, ...conversation });

/**
 * Reads the body of a request to /v1/messages.
 * @param room tokens of the context
 * @throws ApiError 400
 */
export function parseMessageRequest(body: unknown, room: number): CompletionCall {
  checkLists(body, room);
  const ignored: IgnoredField[] = [];
  const fields = parseFields(schema, body, ignored);
  const { max_tokens: most, stop_sequences: stop } = fields;
  if (most == null) throw badRequest('max_tokens is missing; expected an integer of at least 1', 'max_tokens');
  return callOf({ ...fields, n: 1, stop }, [{ messages: messagesOf(fields) }], {
    promptField: 'messages',
    ignored,
    maxTokens: most,
    logprobs: undefined,
  });
}

/** Reads the body of a request to /v1/messages/count_tokens. @throws ApiError 400 */
export function parseCountRequest(body: unknown, room: number): TokenizeCall {
  checkLists(body, room);
  const ignored: IgnoredField[] = [];
  const fields = parseFields(counted, body, ignored);
  return {
    model: fields.model ?? undefined,
    ignored,
    prompt: { messages: messagesOf(fields) },
    options: { addGenerationPrompt: true },
  };
}

function checkLists(body: unknown, room: number): void {
  if (!isObject(body)) return;
  if (Array.isArray(body.messages)) checkMessages(body.messages, room);
  if (Array.isArray(body.stop_sequences)) checkLength(body.stop_sequences, MAX_STOPS, 'stop_sequences', STOPS);
}

/** The system's text and the turns; neighbours of one role are one turn, as Anthropic reads them. @throws ApiError 400 */
function messagesOf({ system, messages }: z.infer<typeof counted>): ChatMessage[] {
  const texts = { types: ['text'], between: '\n' };
  const all: ChatMessage[] = [];
  if (system != null) all.push({ role: 'system', content: textOfParts(system, 'system', texts) });
  for (const [index, { role, content }] of messages.entries()) {
    // What was thought isn't said again.
    const left = role === 'assistant' ? ['thinking', 'redacted_thinking'] : [];
    const text = textOfParts(content, `messages[${index}].content`, { ...texts, left });
    const last = all.at(-1);
    if (last?.role === role) all[all.length - 1] = { role, content: `${last.content}\n\n${text}` };
    else all.push({ role, content: text });
  }
  if (all.at(-1)!.role === 'assistant') {
    throw badRequest(
      'the last message is the assistant’s; this server begins answers itself: end with a message of the user',
      'messages',
    );
  }
  return all;
}
