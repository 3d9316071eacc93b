import { isObject } from '../../base/json.js';
import { formatError } from '../../base/errors.js';

/** An event of a stream, or a comment. */
export interface SseEvent {
  /** As it came, with the empty line behind it. */
  readonly text: string;
  readonly name: string | undefined;
  /** Undefined: a comment. */
  readonly data: string | undefined;
  /** The data where it is JSON. */
  readonly value: unknown;
}

/** No answer's event is larger; what is, is no answer's. */
const MAX_EVENT = 2 ** 26;

/** Cuts a stream of bytes, as this project's servers write it, into events. */
export class SseReader {
  readonly #decoder = new TextDecoder();
  #rest = '';

  /** The events that are whole by now. @throws SplitkvError `format` for one that doesn't end */
  push(bytes: Uint8Array): SseEvent[] {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const blocks = this.#rest.split('\n\n');
    this.#rest = blocks.pop()!;
    if (this.#rest.length > MAX_EVENT) throw formatError(`an event of more than ${MAX_EVENT} characters`);
    return blocks.map(eventOf);
  }

  /** What came behind the last whole event. */
  get rest(): string {
    return this.#rest;
  }
}

function eventOf(block: string): SseEvent {
  const text = `${block}\n\n`;
  let name: string | undefined;
  const data: string[] = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7);
    if (line.startsWith('data: ')) data.push(line.slice(6));
  }
  if (data.length === 0) return { text, name, data: undefined, value: undefined };
  const joined = data.join('\n');
  return { text, name, data: joined, value: valueOf(joined) };
}

function valueOf(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}

/** Whether a stream ends well with this event, in any of the APIs. */
export function endsWell({ data, value }: SseEvent): boolean {
  if (data === '[DONE]') return true;
  const type = isObject(value) ? value['type'] : undefined;
  return type === 'message_stop' || type === 'response.completed' || type === 'response.incomplete';
}

/** Whether it says that the answer broke. */
export function breaks({ value }: SseEvent): boolean {
  if (!isObject(value)) return false;
  const { type, error } = value;
  return type === 'error' || type === 'response.failed' || (type === undefined && isObject(error));
}
