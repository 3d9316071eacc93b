import type { ChatMessage, Completion, CompletionEvent } from '../../index.js';
import type { ApiError } from '../api_error.js';
import { chancesOf } from '../requests/answer_request.js';
import { idOf, type Part, PartWriter, plainInput } from '../requests/part_writer.js';
import type { ResponseCall } from './response_request.js';

const EVENTS = { reasoning: 'reasoning_text', text: 'output_text', call: 'function_call_arguments' };

/** Writes an answer as a response: items of reasoning, of text and of calls, whole or in events. */
export class ResponseWriter extends PartWriter {
  readonly id: string;
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #output: object[] = [];
  #sequence = 0;

  constructor(
    private readonly call: ResponseCall,
    private readonly modelName: string,
    /** Hears of the response once it is whole, and of what was answered. */
    private readonly onWhole: (body: { readonly id: string }, answer: ChatMessage) => void,
    /** Who keeps it, where there are several. */
    place?: string,
  ) {
    super(true);
    this.id = idOf(place === undefined ? 'resp' : `resp_${place}`);
  }

  override opening(): object[] {
    const response = this.#body('in_progress');
    return [this.#event('response.created', { response }), this.#event('response.in_progress', { response })];
  }

  closing(completion: Completion): object[] {
    const response = this.done(completion);
    return [this.#event(`response.${response.status}`, { response })];
  }

  broken(error: ApiError): object[] {
    const response = { ...this.#body('failed'), error: { code: 'server_error', message: error.message } };
    return [responseError(error, this.#sequence++), this.#event('response.failed', { response })];
  }

  protected done(completion: Completion): { readonly id: string; readonly status: string } {
    const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = completion;
    const { isCut } = this;
    const body = {
      ...this.#body(isCut ? 'incomplete' : 'completed'),
      ...(!isCut && { completed_at: Math.floor(Date.now() / 1000) }),
      incomplete_details: isCut ? { reason: 'max_output_tokens' } : null,
      usage: {
        input_tokens: promptTokens,
        input_tokens_details: { cached_tokens: cachedTokens },
        output_tokens: completionTokens,
        output_tokens_details: { reasoning_tokens: reasoningTokens },
        total_tokens: promptTokens + completionTokens,
      },
    };
    const [text, thought] = [this.said('text'), this.said('reasoning')];
    const calls = this.parts.flatMap(({ call, text: given }) =>
      call ? [{ id: call.id, type: 'function' as const, function: { name: call.name, arguments: given } }] : [],
    );
    this.onWhole(body, {
      role: 'assistant',
      content: text === '' && calls.length > 0 ? null : text,
      ...(thought !== '' && { reasoning_content: thought }),
      ...(calls.length > 0 && { tool_calls: calls }),
    });
    return body;
  }

  /** The response as it is so far. */
  #body<Status extends 'in_progress' | 'completed' | 'incomplete' | 'failed'>(status: Status) {
    return {
      id: this.id,
      object: 'response',
      created_at: this.#created,
      status,
      error: null,
      incomplete_details: null,
      usage: null,
      model: this.modelName,
      output: [...this.#output],
      ...this.call.response.told,
    };
  }

  #event(type: string, rest: object): object {
    return { type, sequence_number: this.#sequence++, ...rest };
  }

  #isText({ call }: Part): boolean {
    return call !== undefined && this.call.response.textTools.includes(call.name);
  }

  #itemOf(part: Part, status: string): object {
    const { id, call, text } = part;
    if (!call) return itemOf(part, status);
    const of = { call_id: call.id, ...this.#nameOf(call.name) };
    return this.#isText(part)
      ? { id, type: 'custom_tool_call', status, ...of, input: plainInput(text) }
      : { id, type: 'function_call', status, ...of, arguments: text };
  }

  /** As the request called it. */
  #nameOf(name: string): { readonly name: string; readonly namespace?: string } {
    return this.call.response.spaced.get(name) ?? { name };
  }

  protected began(part: Part): object[] {
    const item = { ...this.#itemOf(part, 'in_progress'), ...(!part.call && { content: [] }) };
    const events = [this.#event('response.output_item.added', { output_index: part.index, item })];
    return part.call ? events : [...events, this.#event('response.content_part.added', contentOf(part))];
  }

  protected added(part: Part, delta: string, logprobs: CompletionEvent['logprobs']): object[] {
    // A plain text is within an object until that is whole.
    if (this.#isText(part)) return [];
    const what = { ...placeOf(part), delta, ...chances(part.kind, logprobs) };
    return [this.#event(`response.${EVENTS[part.kind]}.delta`, what)];
  }

  protected ended(part: Part): object[] {
    const { kind, index, text, call, logprobs } = part;
    const item = this.#itemOf(part, kind === 'text' && this.isCut ? 'incomplete' : 'completed');
    this.#output.push(item);
    const done = (): object => this.#event('response.output_item.done', { output_index: index, item });
    if (this.#isText(part)) {
      const [name, input] = ['response.custom_tool_call_input', plainInput(part.text)] as const;
      return [
        this.#event(`${name}.delta`, { ...placeOf(part), delta: input }),
        this.#event(`${name}.done`, { ...placeOf(part), input }),
        done(),
      ];
    }
    const said = call ? { name: this.#nameOf(call.name).name, arguments: text } : { text, ...chances(kind, logprobs) };
    const events = [this.#event(`response.${EVENTS[kind]}.done`, { ...placeOf(part), ...said })];
    if (!call) events.push(this.#event('response.content_part.done', contentOf(part)));
    return [...events, done()];
  }
}

/** An error within a stream of a response's events. */
export function responseError({ message, details }: ApiError, sequence: number): object {
  const { code = null, param = null } = details;
  return { type: 'error', sequence_number: sequence, code, message, param };
}

const placeOf = ({ index, id, call }: Part): object => ({
  item_id: id,
  output_index: index,
  ...(!call && { content_index: 0 }),
});

function itemOf(part: Part, status: string): object {
  const { id, kind } = part;
  const content = [textOf(part)];
  return kind === 'text'
    ? { id, type: 'message', status, role: 'assistant', content }
    : { id, type: 'reasoning', status, summary: [], content };
}

const contentOf = (part: Part): object => ({ ...placeOf(part), part: textOf(part) });

const textOf = ({ kind, text, logprobs }: Part): object =>
  kind === 'text'
    ? { type: 'output_text', text, annotations: [], ...chances(kind, logprobs) }
    : { type: 'reasoning_text', text };

const chances = (kind: Part['kind'], logprobs: CompletionEvent['logprobs']): object =>
  kind === 'text' ? { logprobs: chancesOf(logprobs) } : {};
