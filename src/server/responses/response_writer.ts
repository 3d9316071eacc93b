import { randomUUID } from 'node:crypto';
import type { ChatMessage, Completion, CompletionEvent, TokenChance } from '../../index.js';
import type { ApiError } from '../api_error.js';
import type { AnswerWriter, WholeAnswer } from '../requests/answer_shape.js';
import type { ResponseCall } from './response_request.js';

type Logprobs = CompletionEvent['logprobs'];

/** An item of a response's output that is being written. */
interface OpenItem {
  readonly index: number;
  readonly id: string;
  readonly kind: 'reasoning' | 'message';
  text: string;
  readonly logprobs: Logprobs[number][];
}

const idOf = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

/** Writes an answer as a response: items of reasoning and of text, whole or in events. */
export class ResponseWriter implements AnswerWriter {
  readonly isNamed = true;
  readonly id = idOf('resp');
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #output: object[] = [];
  #sequence = 0;
  #open: OpenItem | undefined;
  #text = '';
  #finish: WholeAnswer['finish'] | undefined;

  constructor(
    private readonly call: ResponseCall,
    private readonly modelName: string,
    /** Hears of the response once it is whole, and of what was answered. */
    private readonly onWhole: (body: { readonly id: string }, answer: ChatMessage) => void,
  ) {}

  whole([answer]: readonly WholeAnswer[], completion: Completion): object {
    const { text, reasoning, logprobs, finish } = answer!;
    this.chunks({ index: 0, text, reasoning, logprobs: logprobs ?? [], finish });
    return this.#done(completion);
  }

  opening(): object[] {
    const response = this.#body('in_progress');
    return [this.#event('response.created', { response }), this.#event('response.in_progress', { response })];
  }

  chunks({ text, reasoning = '', logprobs, finish }: CompletionEvent): object[] {
    const events: object[] = [];
    if (reasoning !== '') events.push(...this.#add('reasoning', reasoning, []));
    if (text !== '' || logprobs.length > 0) events.push(...this.#add('message', text, logprobs));
    if (finish) {
      this.#finish = finish;
      // There is a message always, if only an empty one.
      if (this.#open?.kind !== 'message') events.push(...this.#switchTo('message'));
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
    this.onWhole(body, { role: 'assistant', content: this.#text });
    return body;
  }

  get #isCut(): boolean {
    return this.#finish === 'max_tokens' || this.#finish === 'context_full';
  }

  /** The response as it is so far. */
  #body<Status extends 'in_progress' | 'completed' | 'incomplete' | 'failed'>(status: Status) {
    const { response } = this.call;
    return {
      id: this.id,
      object: 'response',
      created_at: this.#created,
      status,
      background: false,
      error: null,
      incomplete_details: null,
      usage: null,
      instructions: response.instructions,
      max_output_tokens: response.maxOutputTokens,
      metadata: response.metadata,
      model: this.modelName,
      output: [...this.#output],
      parallel_tool_calls: true,
      previous_response_id: response.previous ?? null,
      reasoning: { effort: null, summary: null },
      service_tier: 'default',
      store: response.store,
      temperature: response.temperature,
      text: { format: response.format },
      tool_choice: 'auto',
      tools: [],
      top_logprobs: response.topLogprobs,
      top_p: response.topP,
      truncation: 'disabled',
      user: response.user,
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
    const type = kind === 'message' ? 'response.output_text.delta' : 'response.reasoning_text.delta';
    events.push(this.#event(type, { ...this.#at(item), delta, ...this.#chances(kind, logprobs) }));
    return events;
  }

  #switchTo(kind: OpenItem['kind']): object[] {
    const events = this.#close();
    const id = idOf(kind === 'message' ? 'msg' : 'rs');
    const item: OpenItem = { index: this.#output.length, id, kind, text: '', logprobs: [] };
    this.#open = item;
    const empty = { ...this.#item(item, 'in_progress'), content: [] };
    events.push(this.#event('response.output_item.added', { output_index: item.index, item: empty }));
    events.push(this.#event('response.content_part.added', { ...this.#at(item), part: this.#part(item) }));
    return events;
  }

  #close(): object[] {
    const item = this.#open;
    if (!item) return [];
    this.#open = undefined;
    const { kind, text, logprobs } = item;
    const whole = this.#item(item, kind === 'message' && this.#isCut ? 'incomplete' : 'completed');
    this.#output.push(whole);
    if (kind === 'message') this.#text += text;
    const type = kind === 'message' ? 'response.output_text.done' : 'response.reasoning_text.done';
    return [
      this.#event(type, { ...this.#at(item), text, ...this.#chances(kind, logprobs) }),
      this.#event('response.content_part.done', { ...this.#at(item), part: this.#part(item) }),
      this.#event('response.output_item.done', { output_index: item.index, item: whole }),
    ];
  }

  #at({ index, id }: OpenItem): object {
    return { item_id: id, output_index: index, content_index: 0 };
  }

  #item(item: OpenItem, status: string): object {
    const { id, kind } = item;
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
    if (kind === 'reasoning') return {};
    return { logprobs: logprobs.map((token) => ({ ...chance(token), top_logprobs: token.top.map(chance) })) };
  }
}

const chance = ({ text, logprob, bytes }: TokenChance): object => ({ token: text, logprob, bytes });
