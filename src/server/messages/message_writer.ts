import { randomUUID } from 'node:crypto';
import { isObject } from '../../base/json.js';
import type { Completion, CompletionEvent } from '../../index.js';
import type { ApiError } from '../api_error.js';
import type { AnswerWriter, WholeAnswer } from '../requests/answer_shape.js';

/** A part of the answer. */
type Block =
  | { readonly type: 'thinking'; thinking: string; readonly signature: '' }
  | { readonly type: 'text'; text: string }
  | { readonly type: 'tool_use'; readonly id: string; readonly name: string; input: object };

const STOP_REASONS: Readonly<Record<WholeAnswer['finish'], string>> = {
  eos: 'end_turn',
  stop_token: 'end_turn',
  stop_string: 'stop_sequence',
  max_tokens: 'max_tokens',
  context_full: 'model_context_window_exceeded',
  aborted: 'end_turn', // never told
};

/** Writes an answer as a message: blocks of thinking and of text, whole or in events. */
export class MessageWriter implements AnswerWriter {
  readonly isNamed = true;
  readonly #id = `msg_${randomUUID().replaceAll('-', '')}`;
  readonly #blocks: Block[] = [];
  /** Of the call that is being written, as they come. */
  #arguments = '';
  #reason: string | null = null;
  #stop: string | null = null;

  constructor(private readonly modelName: string) {}

  whole([answer]: readonly WholeAnswer[], completion: Completion): object {
    const { text, reasoning, toolCalls, finish, stop } = answer!;
    const calls = toolCalls.map(({ id, function: of }, index) => ({ index, id, ...of }));
    const event = { index: 0, text, reasoning, toolCalls: calls, logprobs: [], finish };
    this.chunks({ ...event, ...(stop !== undefined && { stop }) });
    return this.#message(this.#blocks, completion);
  }

  opening(completion: Completion): object[] {
    return [{ type: 'message_start', message: this.#message([], completion) }];
  }

  chunks({ text, reasoning = '', toolCalls = [], finish, stop }: CompletionEvent): object[] {
    const events: object[] = [];
    if (reasoning !== '') {
      const block = this.#open('thinking', events);
      if (block.type === 'thinking') block.thinking += reasoning;
      events.push(this.#delta({ type: 'thinking_delta', thinking: reasoning }));
    }
    if (text !== '') {
      const block = this.#open('text', events);
      if (block.type === 'text') block.text += text;
      events.push(this.#delta({ type: 'text_delta', text }));
    }
    for (const { id, name = '', arguments: partial_json } of toolCalls) {
      if (id !== undefined) this.#begin({ type: 'tool_use', id, name, input: {} }, events);
      if (partial_json === '') continue;
      this.#arguments += partial_json;
      events.push(this.#delta({ type: 'input_json_delta', partial_json }));
    }
    if (finish) {
      const isCut = finish === 'max_tokens' || finish === 'context_full';
      const called = this.#blocks.some(({ type }) => type === 'tool_use');
      this.#reason = called && !isCut ? 'tool_use' : STOP_REASONS[finish];
      this.#stop = stop ?? null;
      if (this.#blocks.length > 0) events.push(this.#closed());
    }
    return events;
  }

  closing(completion: Completion): object[] {
    const delta = { stop_reason: this.#reason, stop_sequence: this.#stop };
    return [{ type: 'message_delta', delta, usage: usageOf(completion) }, { type: 'message_stop' }];
  }

  broken(error: ApiError): object[] {
    return [messageError(error)];
  }

  #message(content: readonly Block[], completion: Completion): object {
    return {
      id: this.#id,
      type: 'message',
      role: 'assistant',
      model: this.modelName,
      content,
      stop_reason: this.#reason,
      stop_sequence: this.#stop,
      usage: usageOf(completion),
    };
  }

  /** The last block, which is of this type from now on. */
  #open(type: 'text' | 'thinking', events: object[]): Block {
    const last = this.#blocks.at(-1);
    if (last?.type === type) return last;
    return this.#begin(type === 'text' ? { type, text: '' } : { type, thinking: '', signature: '' }, events);
  }

  #begin(block: Block, events: object[]): Block {
    if (this.#blocks.length > 0) events.push(this.#closed());
    this.#blocks.push(block);
    events.push({ type: 'content_block_start', index: this.#blocks.length - 1, content_block: { ...block } });
    return block;
  }

  #delta(delta: object): object {
    return { type: 'content_block_delta', index: this.#blocks.length - 1, delta };
  }

  #closed(): object {
    const last = this.#blocks.at(-1);
    if (last?.type === 'tool_use') last.input = inputOf(this.#arguments);
    this.#arguments = '';
    return { type: 'content_block_stop', index: this.#blocks.length - 1 };
  }
}

/** Of a call that was cut, nothing. */
function inputOf(text: string): object {
  try {
    const input: unknown = JSON.parse(text);
    return isObject(input) ? input : {};
  } catch {
    return {};
  }
}

/** Of the prompt, what was cached counts by itself. */
const usageOf = ({ promptTokens, cachedTokens, completionTokens }: Completion): object => ({
  input_tokens: promptTokens - cachedTokens,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: cachedTokens,
  output_tokens: completionTokens,
});

const TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
};

/** An error in Anthropic's shape. A thread that isn't taken is told in a way that its own clients go on without one. */
export const messageError = ({ status, message, details: { code, param } }: ApiError): object => ({
  type: 'error',
  error: {
    type: TYPES[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error'),
    message,
    ...(code === 'thread_unsupported_request' && { details: { error_code: code, unsupported: [param] } }),
  },
});
