import type { Completion } from '../../index.js';
import type { ApiError } from '../api_error.js';
import type { WholeAnswer } from '../requests/answer_request.js';
import { idOf, inputOf, type Part, PartWriter } from '../requests/part_writer.js';

const STOP_REASONS: Readonly<Record<WholeAnswer['finish'], string>> = {
  eos: 'end_turn',
  stop_token: 'end_turn',
  stop_string: 'stop_sequence',
  max_tokens: 'max_tokens',
  context_full: 'model_context_window_exceeded',
  aborted: 'end_turn', // never told
};

/** What an event says is new of a part. */
const DELTAS = {
  reasoning: (thinking: string): object => ({ type: 'thinking_delta', thinking }),
  text: (text: string): object => ({ type: 'text_delta', text }),
  call: (partial_json: string): object => ({ type: 'input_json_delta', partial_json }),
};

/** Writes an answer as a message: blocks of thinking, of text and of uses of tools, whole or in events. */
export class MessageWriter extends PartWriter {
  readonly #id = idOf('msg');

  constructor(private readonly modelName: string) {
    super(false);
  }

  override opening(completion: Completion): object[] {
    return [{ type: 'message_start', message: this.done(completion) }];
  }

  closing(completion: Completion): object[] {
    return [{ type: 'message_delta', delta: this.#end, usage: usageOf(completion) }, { type: 'message_stop' }];
  }

  broken(error: ApiError): object[] {
    return [messageError(error)];
  }

  protected done(completion: Completion): object {
    return {
      id: this.#id,
      type: 'message',
      role: 'assistant',
      model: this.modelName,
      content: this.parts.map(blockOf),
      ...this.#end,
      usage: usageOf(completion),
    };
  }

  protected began(part: Part): object[] {
    return [{ type: 'content_block_start', index: part.index, content_block: blockOf(part) }];
  }

  protected added({ kind, index }: Part, delta: string): object[] {
    return [{ type: 'content_block_delta', index, delta: DELTAS[kind](delta) }];
  }

  protected ended({ index, kind }: Part): object[] {
    const stop = { type: 'content_block_stop', index };
    // Clients keep what was thought only with a signature.
    const delta = { type: 'signature_delta', signature: '' };
    return kind === 'reasoning' ? [{ type: 'content_block_delta', index, delta }, stop] : [stop];
  }

  get #end(): object {
    const called = this.parts.some(({ kind }) => kind === 'call') && !this.isCut;
    const stop_reason = called ? 'tool_use' : this.finish && STOP_REASONS[this.finish];
    return { stop_reason: stop_reason ?? null, stop_sequence: this.stop ?? null };
  }
}

function blockOf({ kind, text, call }: Part): object {
  if (call) return { type: 'tool_use', ...call, input: inputOf(text) };
  return kind === 'text' ? { type: 'text', text } : { type: 'thinking', thinking: text, signature: '' };
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
