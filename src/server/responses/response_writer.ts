import { randomUUID } from 'node:crypto';
import type { ChatMessage, Completion, CompletionEvent, ToolCall } from '../../index.js';
import type { ApiError } from '../api_error.js';
import { type AnswerWriter, chancesOf, type WholeAnswer } from '../requests/answer_shape.js';
import type { ResponseCall } from './response_request.js';

type Logprobs = CompletionEvent['logprobs'];

/** An item of a response's output that is being written. */
interface OpenItem {
  readonly index: number;
  readonly id: string;
  readonly kind: 'reasoning' | 'message' | 'function_call';
  /** Of a call: which of them it is, and whose. */
  readonly call?: { readonly id: string; readonly name: string };
  /** Its text, or a call's arguments. */
  text: string;
  readonly logprobs: Logprobs[number][];
}

const EVENTS: Readonly<Record<OpenItem['kind'], string>> = {
  reasoning: 'reasoning_text',
  message: 'output_text',
  function_call: 'function_call_arguments',
};
const PREFIXES: Readonly<Record<OpenItem['kind'], string>> = { reasoning: 'rs', message: 'msg', function_call: 'fc' };

const idOf = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

/** Writes an answer as a response: items of reasoning and of text, whole or in events. */
export class ResponseWriter implements AnswerWriter {
  readonly isNamed = true;
  readonly id: string;
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #output: object[] = [];
  #sequence = 0;
  #open: OpenItem | undefined;
  #text = '';
  #thought = '';
  readonly #calls: ToolCall[] = [];
  #finish: WholeAnswer['finish'] | undefined;

  constructor(
    private readonly call: ResponseCall,
    private readonly modelName: string,
    /** Hears of the response once it is whole, and of what was answered. */
    private readonly onWhole: (body: { readonly id: string }, answer: ChatMessage) => void,
    /** Who keeps it, where there are several. */
    place?: string,
  ) {
    this.id = idOf(place === undefined ? 'resp' : `resp_${place}`);
  }

  whole([answer]: readonly WholeAnswer[], completion: Completion): object {
    const { text, reasoning, toolCalls, logprobs, finish } = answer!;
    const calls = toolCalls.map(({ id, function: of }, index) => ({ index, id, ...of }));
    this.chunks({ index: 0, text, reasoning, toolCalls: calls, logprobs: logprobs ?? [], finish });
    return this.#done(completion);
  }

  opening(): object[] {
    const response = this.#body('in_progress');
    return [this.#event('response.created', { response }), this.#event('response.in_progress', { response })];
  }

  chunks({ text, reasoning = '', toolCalls = [], logprobs, finish }: CompletionEvent): object[] {
    const events: object[] = [];
    if (reasoning !== '') events.push(...this.#add('reasoning', reasoning, []));
    if (text !== '' || logprobs.length > 0) events.push(...this.#add('message', text, logprobs));
    for (const { id, name = '', arguments: delta } of toolCalls) {
      if (id !== undefined) events.push(...this.#switchTo('function_call', { id, name }));
      if (delta !== '') events.push(...this.#add('function_call', delta, []));
    }
    if (finish) {
      this.#finish = finish;
      // There is a message where nothing was called, if only an empty one.
      const isWhole = this.#open?.kind === 'message' || this.#open?.kind === 'function_call';
      if (!isWhole) events.push(...this.#switchTo('message'));
      events.push(...this.#close());
    }
    return events;
  }

  closing(completion: Completion): object[] {
    const response = this.#done(completion);
    return [this.#event(`response.${response.status}`, { response })];
  }

  broken(error: ApiError): object[] {
    const { code = null, param = null } = error.details;
    const { message } = error;
    const response = { ...this.#body('failed'), error: { code: 'server_error', message } };
    return [this.#event('error', { code, message, param }), this.#event('response.failed', { response })];
  }

  #done(completion: Completion): { readonly id: string; readonly status: string } {
    const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = completion;
    const isCut = this.#isCut;
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
    this.onWhole(body, {
      role: 'assistant',
      content: this.#text === '' && this.#calls.length > 0 ? null : this.#text,
      ...(this.#thought !== '' && { reasoning_content: this.#thought }),
      ...(this.#calls.length > 0 && { tool_calls: this.#calls }),
    });
    return body;
  }

  get #isCut(): boolean {
    return this.#finish === 'max_tokens' || this.#finish === 'context_full';
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

  /** More of an item's text, after the item before is closed where it is another. */
  #add(kind: OpenItem['kind'], delta: string, logprobs: Logprobs): object[] {
    const events = this.#open?.kind === kind ? [] : this.#switchTo(kind);
    const item = this.#open!;
    item.text += delta;
    item.logprobs.push(...logprobs);
    const type = `response.${EVENTS[kind]}.delta`;
    events.push(this.#event(type, { ...this.#at(item), delta, ...this.#chances(kind, logprobs) }));
    return events;
  }

  #switchTo(kind: OpenItem['kind'], call?: NonNullable<OpenItem['call']>): object[] {
    const events = this.#close();
    const id = idOf(PREFIXES[kind]);
    const item: OpenItem = { index: this.#output.length, id, kind, text: '', logprobs: [], ...(call && { call }) };
    this.#open = item;
    const empty = { ...this.#item(item, 'in_progress'), ...(!call && { content: [] }) };
    events.push(this.#event('response.output_item.added', { output_index: item.index, item: empty }));
    if (!call) events.push(this.#event('response.content_part.added', { ...this.#at(item), part: this.#part(item) }));
    return events;
  }

  #close(): object[] {
    const item = this.#open;
    if (!item) return [];
    this.#open = undefined;
    const { kind, text, call, logprobs } = item;
    const whole = this.#item(item, kind === 'message' && this.#isCut ? 'incomplete' : 'completed');
    this.#output.push(whole);
    if (kind === 'message') this.#text += text;
    if (kind === 'reasoning') this.#thought += text;
    if (call) this.#calls.push({ id: call.id, type: 'function', function: { name: call.name, arguments: text } });
    const said = call ? { name: call.name, arguments: text } : { text, ...this.#chances(kind, logprobs) };
    const events = [this.#event(`response.${EVENTS[kind]}.done`, { ...this.#at(item), ...said })];
    if (!call) events.push(this.#event('response.content_part.done', { ...this.#at(item), part: this.#part(item) }));
    events.push(this.#event('response.output_item.done', { output_index: item.index, item: whole }));
    return events;
  }

  #at({ index, id, call }: OpenItem): object {
    return { item_id: id, output_index: index, ...(!call && { content_index: 0 }) };
  }

  #item(item: OpenItem, status: string): object {
    const { id, kind, call, text } = item;
    if (call) return { id, type: 'function_call', status, call_id: call.id, name: call.name, arguments: text };
    const content = [this.#part(item)];
    return kind === 'message'
      ? { id, type: 'message', status, role: 'assistant', content }
      : { id, type: 'reasoning', status, summary: [], content };
  }

  #part({ kind, text, logprobs }: OpenItem): object {
    return kind === 'message'
      ? { type: 'output_text', text, annotations: [], ...this.#chances(kind, logprobs) }
      : { type: 'reasoning_text', text };
  }

  #chances(kind: OpenItem['kind'], logprobs: Logprobs): { readonly logprobs?: object[] } {
    if (kind !== 'message') return {};
    return { logprobs: chancesOf(logprobs) };
  }
}
