/**
 * Room: what a request's body means: its shape, checked by zod (chat_shape.ts, text_shape.ts), and the call of the
 * model that follows from it. Runs in threads, too: request_thread.ts.
 */

import { type PromptReader, promptTokens } from '../../engine/prompt_tokens.js';
import { badRequest, toApiError } from '../api_error.js';
import { parseChatRequest } from './chat_request.js';
import type { CompletionCall } from './completion_call.js';
import { parseTextRequest } from './text_request.js';

/** A request's body as a call for completions. @throws ApiError 400 */
export function readCall(body: Uint8Array, isChat: boolean, contextLength: number): CompletionCall {
  const parsed = parseJson(body);
  return isChat ? parseChatRequest(parsed, contextLength) : parseTextRequest(parsed, contextLength);
}

/** The same with its prompts as token ids. @throws ApiError 400 */
export function readTokenCall(body: Uint8Array, isChat: boolean, reader: PromptReader): CompletionCall {
  const call = readCall(body, isChat, reader.contextLength);
  try {
    return { ...call, prompts: call.prompts.map((prompt) => promptTokens(prompt, reader)) };
  } catch (error) {
    throw toApiError(error, call.promptField);
  }
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (error) {
    const why = error instanceof SyntaxError ? error.message : 'it is not UTF-8';
    throw badRequest(`the body is not valid JSON: ${why}`);
  }
}
