import { randomUUID } from 'node:crypto';
import { isObject, parsed } from '../../base/json.js';
import type { Completion, CompletionEvent } from '../../index.js';
import type { ApiError } from '../api_error.js';
import type { AnswerTimes, AnswerWriter, WholeAnswer } from './answer_request.js';

/** What was thought, a text, or a call of a tool. */
export interface Part {
  readonly id: string;
  readonly index: number;
  readonly kind: 'reasoning' | 'text' | 'call';
  /** Of a call. */
  readonly call?: { readonly id: string; readonly name: string };
  /** Its text, or a call's arguments. */
  text: string;
  readonly logprobs: CompletionEvent['logprobs'][number][];
}

/** Of ids, as OpenAI has them. */
const PREFIXES = { reasoning: 'rs', text: 'msg', call: 'fc' };

/** A name that nothing else has. */
export const idOf = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

/** A call's arguments; of a call that was cut, none. */
export function inputOf(text: string): object {
  const input = parsed(text);
  return isObject(input) ? input : {};
}

/** What a tool of plain texts is called with, which is within an object. */
export function plainInput(text: string): string {
  const { input } = inputOf(text) as { readonly input?: unknown };
  return typeof input === 'string' ? input : text;
}

/** Writes an answer in parts, each ended before the next one begins, whole or in events. */
export abstract class PartWriter implements AnswerWriter {
  protected readonly parts: Part[] = [];
  protected finish: WholeAnswer['finish'] | undefined;
  protected stop: string | undefined;
  #open: Part | undefined;

  /** @param needsText whether an answer that calls nothing has a text, if only an empty one */
  protected constructor(private readonly needsText: boolean) {}

  opening?(completion: Completion): object[];
  abstract closing(completion: Completion, times: AnswerTimes): object[];
  abstract broken(error: ApiError): object[];
  protected abstract done(completion: Completion, times: AnswerTimes): object;
  /** Events of a part's beginning, of more of it, and of its end. */
  protected abstract began(part: Part): object[];
  protected abstract added(part: Part, delta: string, logprobs: CompletionEvent['logprobs']): object[];
  protected abstract ended(part: Part): object[];

  whole([answer]: readonly WholeAnswer[], completion: Completion, times: AnswerTimes): object {
    const { text, reasoning, toolCalls, logprobs = [], finish, stop } = answer!;
    const calls = toolCalls.map(({ id, function: of }, index) => ({ index, id, ...of }));
    const event = { index: 0, text, reasoning, toolCalls: calls, logprobs, finish };
    this.chunks({ ...event, ...(stop !== undefined && { stop }) });
    return this.done(completion, times);
  }

  chunks({ text, reasoning = '', toolCalls = [], logprobs, finish, stop }: CompletionEvent): object[] {
    const events: object[] = [];
    if (reasoning !== '') events.push(...this.#add('reasoning', reasoning, []));
    if (text !== '' || logprobs.length > 0) events.push(...this.#add('text', text, logprobs));
    for (const { id, name = '', arguments: delta } of toolCalls) {
      if (id !== undefined) events.push(...this.#begin('call', { id, name }));
      if (delta !== '') events.push(...this.#add('call', delta, []));
    }
    if (!finish) return events;
    this.finish = finish;
    this.stop = stop;
    const kind = this.#open?.kind ?? 'reasoning';
    if (this.needsText && kind === 'reasoning') events.push(...this.#begin('text'));
    return [...events, ...this.#end()];
  }

  /** All parts of a kind. */
  protected said(kind: Part['kind']): string {
    return this.parts.map((part) => (part.kind === kind ? part.text : '')).join('');
  }

  protected get isCut(): boolean {
    return this.finish === 'max_tokens' || this.finish === 'context_full';
  }

  #add(kind: Part['kind'], delta: string, logprobs: CompletionEvent['logprobs']): object[] {
    const events = this.#open?.kind === kind ? [] : this.#begin(kind);
    const part = this.#open!;
    part.text += delta;
    part.logprobs.push(...logprobs);
    return [...events, ...this.added(part, delta, logprobs)];
  }

  #begin(kind: Part['kind'], call?: Part['call']): object[] {
    const events = this.#end();
    const id = idOf(PREFIXES[kind]);
    const part: Part = { id, index: this.parts.length, kind, text: '', logprobs: [], ...(call && { call }) };
    this.#open = part;
    this.parts.push(part);
    return [...events, ...this.began(part)];
  }

  #end(): object[] {
    const part = this.#open;
    this.#open = undefined;
    return part ? this.ended(part) : [];
  }
}
