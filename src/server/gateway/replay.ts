import { createHash, type Hash } from 'node:crypto';
import { formatError } from '../../base/errors.js';
import { isObject, parsed } from '../../base/json.js';
import { sum, valueIn } from '../../base/lists.js';

/** An event of a stream, or a comment. */
export interface SseEvent {
  /** As it came, with the empty line behind it. */
  readonly text: string;
  readonly name: string | undefined;
  /** Undefined: a comment. */
  readonly data: string | undefined;
  /** The data where it is JSON. */
  readonly value: unknown;
  readonly isLine?: boolean;
}

/** No answer's event is larger; what is, is no answer's. */
const MAX_EVENT = 2 ** 26;

/** Cuts a stream of bytes, as this project's servers write it, into events, or lines of JSON. */
export class EventReader {
  readonly #decoder = new TextDecoder();
  #rest = '';

  constructor(private readonly isLines = false) {}

  /** The events that are whole by now. @throws SplitkvError `format` for one that doesn't end */
  push(bytes: Uint8Array): SseEvent[] {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const blocks = this.#rest.split(this.isLines ? '\n' : '\n\n');
    this.#rest = blocks.pop() ?? '';
    if (this.#rest.length > MAX_EVENT) throw formatError(`an event of more than ${MAX_EVENT} characters`);
    return blocks.map(this.isLines ? lineOf : eventOf);
  }
}

const lineOf = (line: string): SseEvent => ({
  text: `${line}\n`,
  name: undefined,
  data: line,
  value: parsed(line),
  isLine: true,
});

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
  return { text, name, data: joined, value: parsed(joined) };
}

/** Whether a stream ends well with this event, in any of the APIs. */
export function endsWell({ data, value }: SseEvent): boolean {
  if (data === '[DONE]') return true;
  const type = isObject(value) ? value['type'] : undefined;
  // The latter of Ollama's and llama.cpp's.
  if (isObject(value) && (value['done'] === true || value['stop'] === true)) return true;
  return type === 'message_stop' || type === 'response.completed' || type === 'response.incomplete';
}

/** Whether it says that the answer broke. */
export function breaks({ value }: SseEvent): boolean {
  if (!isObject(value)) return false;
  const { type, error } = value;
  return (
    type === 'error' ||
    type === 'response.failed' ||
    (type === undefined && (isObject(error) || typeof error === 'string'))
  );
}

/** What another replica says isn't what was said before. */
export class DiffersError extends Error {
  override readonly name = 'DiffersError';
}

/** What was sent of one answer of several, whose events come in order. */
interface Lane {
  count: number;
  readonly digest: Hash;
  /** In the order in which they were first said. */
  readonly ids: string[];
}

/** Fields that are another each time: names that were drawn, times, and what a cache held. */
const isId = (key: string): boolean => key === 'id' || key.endsWith('_id');
const TIMES = ['created', 'created_at', 'completed_at'];
const CACHED = [
  'cached_tokens',
  'cache_read_input_tokens',
  'input_tokens',
  'total_duration',
  'load_duration',
  'prompt_eval_duration',
  'eval_duration',
  'timings',
];

/**
 * A stream's events as the client gets them, whoever says them: when another replica says all of it again, what was sent is
 * compared and left out, and what follows has the names (ids) and times of the first one's. Memory doesn't grow with what was sent.
 */
export class StreamReplay {
  readonly #lanes = new Map<string, Lane>();
  /** What the replica that goes on has said so far; undefined while the first one speaks. */
  #again: Map<string, Lane> | undefined;
  readonly #times = new Map<string, unknown>();
  /** The answer's own name, which all its events may have, and what others call it. */
  #id: string | undefined;
  readonly #others = new Set<string>();

  /** Events that were sent. */
  get sent(): number {
    return sum(Array.from(this.#lanes.values(), ({ count }) => count));
  }

  /** Another one begins from the first event. */
  restart(): void {
    this.#again = new Map();
  }

  /**
   * The event as it is to be sent; undefined when it was.
   * @throws DiffersError when it isn't what was sent
   */
  take(event: SseEvent): string | undefined {
    if (event.data === undefined) return event.text;
    const value = event.value;
    const name = laneOf(value);
    const lane = entry(this.#lanes, name);
    const id = isObject(value) && typeof value['id'] === 'string' ? value['id'] : undefined;
    this.#id ??= id;
    if (!this.#again) {
      addTo(lane, event, this.#times);
      return event.text;
    }
    if (id !== undefined) this.#others.add(id);
    const again = entry(this.#again, name);
    const isNew = again.count >= lane.count;
    addTo(again, event, isNew ? this.#times : undefined);
    if (!isNew) {
      if (again.count === lane.count && digestOf(again) !== digestOf(lane)) throw differs(lane.count);
      return undefined;
    }
    lane.ids.push(...again.ids.slice(lane.ids.length));
    lane.count++;
    lane.digest.update(formOf(event, again.ids));
    const nameOf = (each: string): string => (this.#others.has(each) ? this.#id! : lane.ids[again.ids.indexOf(each)]!);
    return textOf(event, nameOf, this.#times);
  }

  /** The one that speaks has said all. @throws DiffersError when that is less than was sent */
  end(): void {
    if (!this.#again) return;
    for (const [name, { count }] of this.#lanes) {
      if ((this.#again.get(name)?.count ?? 0) < count) throw differs(count);
    }
  }
}

const differs = (count: number): DiffersError =>
  new DiffersError(`another replica doesn't say the same within the ${count} events that were sent`);

const entry = (map: Map<string, Lane>, name: string): Lane =>
  valueIn(map, name, () => ({ count: 0, digest: createHash('sha256'), ids: [] }));

const digestOf = ({ digest }: Lane): string => digest.copy().digest('base64');

/** Answers of one request are told side by side, in an order that changes from time to time. */
function laneOf(value: unknown): string {
  if (!isObject(value) || !Array.isArray(value['choices'])) return '';
  const [first] = value['choices'] as unknown[];
  return isObject(first) ? String(first['index']) : '';
}

function addTo(lane: Lane, event: SseEvent, times?: Map<string, unknown>): void {
  lane.count++;
  lane.digest.update(formOf(event, lane.ids, times));
}

/** What is the same each time. Ids that are new, and times, are noted. */
function formOf({ name = '', data, value }: SseEvent, ids: string[], times?: Map<string, unknown>): string {
  if (value === undefined) return `${name}\n${data}\n`;
  const form = JSON.stringify(value, (key, part: unknown) => {
    if (isId(key) && typeof part === 'string') {
      const at = ids.indexOf(part);
      return at < 0 ? ids.push(part) - 1 : at;
    }
    if (times && TIMES.includes(key) && !times.has(key)) times.set(key, part);
    return TIMES.includes(key) || CACHED.includes(key) ? undefined : part;
  });
  return `${name}\n${form}\n`;
}

/** With other ids, and the times that were told before. */
function textOf(
  { name, text, value, isLine }: SseEvent,
  idOf: (id: string) => string,
  times: Map<string, unknown>,
): string {
  if (value === undefined) return text;
  const data = JSON.stringify(value, (key, part: unknown) => {
    if (isId(key) && typeof part === 'string') return idOf(part);
    return TIMES.includes(key) && times.has(key) ? times.get(key) : part;
  });
  if (isLine) return `${data}\n`;
  return `${name === undefined ? '' : `event: ${name}\n`}data: ${data}\n\n`;
}
