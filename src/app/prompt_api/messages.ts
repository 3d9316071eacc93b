import { isObject } from '../../base/json.js';
import type { ContentPart } from '../../index.js';
import type { Content, GivenPart } from './media.js';
import type { LanguageModelOptions, LanguageModelSamplingMode, LanguageModelTool } from './types.js';

/** What modes make of the temperature that the model's makers recommend, or of 1. */
export const MODES: Readonly<Record<LanguageModelSamplingMode, number>> = {
  'most-predictable': 0,
  predictable: 0.5,
  balanced: 1,
  creative: 1.25,
  'most-creative': 1.5,
};

export interface ReadMessage<Said = Content> {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: Said;
  /** The answer begins like this, and goes on. */
  readonly prefix?: true;
}

const ROLES = ['system', 'user', 'assistant'] as const;
/** What messages may hold beside texts, where a session expects it. */
export const MEDIA = ['image', 'audio'] as const;
export type Media = (typeof MEDIA)[number];
const TYPES = ['text', 'image', 'audio', 'tool-call', 'tool-response'] as const;

/**
 * The messages of a prompt, which is read as a browser reads it: what is no list is a text.
 * @param takes what a session expects beside text
 * @param isAsked an answer is wanted: its beginning may be the last of them
 * @throws TypeError for what is none, DOMException `NotSupportedError` for what the session doesn't take, `SyntaxError` for a
 *   beginning that isn't the last message
 */
export function readMessages(prompt: unknown, takes: readonly Media[], isAsked = false): ReadMessage[] {
  if (!isList(prompt)) return [{ role: 'user', content: `${prompt as string}` }];
  const messages = Array.from(prompt);
  return messages.map((message, index) => {
    const { role, content, prefix } = dictionary(message, `message ${index}`);
    const own = oneOf(ROLES, role, `message ${index}: role`);
    if (content === undefined) throw new TypeError(`message ${index}: it has no content`);
    if (own === 'system' && index > 0) throw new TypeError(`message ${index}: a system's message must be the first`);
    if (prefix && (own !== 'assistant' || index < messages.length - 1))
      throw new DOMException(`message ${index}: prefix is for the assistant's message, as the last`, 'SyntaxError');
    if (prefix && !isAsked) throw unsupported(`message ${index}: only what is prompted may have a beginning (prefix)`);
    return {
      role: own,
      content: contentOf(content, own === 'user' ? takes : [], index),
      ...(prefix ? { prefix: true } : {}),
    };
  });
}

function contentOf(content: unknown, takes: readonly Media[], index: number): Content {
  if (!isList(content)) return `${content as string}`;
  const parts = Array.from(content, (part): GivenPart => {
    const { type, value } = dictionary(part, `message ${index}: content`);
    const own = oneOf(TYPES, type, `message ${index}: content: type`);
    if (value === undefined) throw new TypeError(`message ${index}: content of type ${own}: it has no value`);
    if (takes.some((media) => media === own)) return { type: own as Media, value: value as never };
    if (own !== 'text')
      throw unsupported(
        `message ${index}: content of type ${own}: only the user's may have some, in a session that says so (expectedInputs)`,
      );
    if (typeof value === 'object' && !/^\[object (Object|Array|Null)\]$/.test(Object.prototype.toString.call(value)))
      throw new TypeError(`message ${index}: the value of a text is no string`);
    return { type: own, value: `${value as string}` };
  });
  const texts = parts.filter((part) => part.type === 'text');
  return texts.length === parts.length ? texts.map(({ value }) => value).join('') : parts;
}

const isList = (value: unknown): value is Iterable<unknown> =>
  typeof value === 'object' && value !== null && Symbol.iterator in value;

/** What is absent is an object without members. */
function dictionary(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' && typeof value !== 'function') throw new TypeError(`${what} is no object`);
  return value as Record<string, unknown>;
}

function oneOf<T extends string>(values: readonly T[], value: unknown, what: string): T {
  const known = values.find((one) => one === `${value as string}`);
  if (known === undefined) throw new TypeError(`${what} is ${String(value)}; expected ${values.join(', ')}`);
  return known;
}

/** A message as conversations have it. */
export type Said = string | readonly ContentPart[];

/** Questions that have their answers, and what the user said that has none yet. Neighbours of one role are one. */
export function turnsOf(
  before: readonly Said[],
  messages: readonly ReadMessage<Said>[],
): { readonly turns: (ReturnType<typeof askedOf> & { answer: string; tokens: number[] })[]; readonly pending: Said[] } {
  const turns: (ReturnType<typeof askedOf> & { answer: string; tokens: number[] })[] = [];
  let pending = [...before];
  for (const [index, { role, content }] of messages.entries()) {
    if (role === 'user') {
      pending.push(content);
      continue;
    }
    const last = turns.at(-1);
    if (last && pending.length === 0 && messages[index - 1]?.role === 'assistant')
      last.answer += `\n\n${content as string}`;
    else turns.push({ ...askedOf(joined(pending)), answer: content as string, tokens: [] });
    pending = [];
  }
  return { turns, pending };
}

/** A question as saved conversations have it. */
export function askedOf(said: Said): { user: string; parts?: readonly ContentPart[] } {
  if (typeof said === 'string') return { user: said };
  return { user: said.map((part) => (part.type === 'text' ? part.text : '')).join(''), parts: said };
}

/** One message of several. */
export function joined(said: readonly Said[]): Said {
  if (said.every((each) => typeof each === 'string')) return said.join('\n\n');
  return said.flatMap((each, index): readonly ContentPart[] => [
    ...(index > 0 ? [{ type: 'text', text: '\n\n' } as const] : []),
    ...(typeof each === 'string' ? [{ type: 'text', text: each } as const] : each),
  ]);
}

/**
 * Why there can be no session with these options; undefined: there can.
 * @throws TypeError for values that are none, RangeError for tags that are no language's
 */
export function checkOptions(options: LanguageModelOptions): string | undefined {
  const { temperature, topK, samplingMode, expectedInputs = [], expectedOutputs = [] } = options;
  if (samplingMode !== undefined) {
    oneOf(Object.keys(MODES), samplingMode, 'samplingMode');
    if (temperature !== undefined || topK !== undefined)
      throw new TypeError('samplingMode says what temperature and topK say; give one of them');
  }
  const read = (list: Iterable<unknown>, ...known: (typeof TYPES)[number][]) =>
    Array.from(list, (one) => {
      const { type, languages = [] } = dictionary(one, 'what is expected');
      const own = oneOf(TYPES, type, 'type');
      const tags = Intl.getCanonicalLocales(Array.from(languages as string[]));
      return { type: own, tags, known: own === 'text' || known.some((each) => each === own) };
    });
  const expected = [...read(expectedInputs, 'tool-response', ...MEDIA), ...read(expectedOutputs, 'tool-call')];
  readTools(options.tools);
  if ((temperature === undefined) !== (topK === undefined))
    return 'temperature and topK go together; give both, or a samplingMode';
  const other = expected.find(({ known }) => !known);
  if (other) return `${other.type} is not supported there; models write text`;
  const names = new Intl.DisplayNames(['en'], { type: 'language', fallback: 'none' });
  const unknown = expected.flatMap(({ tags }) => tags).find((tag) => names.of(tag) === undefined);
  return unknown === undefined ? undefined : `${unknown} is no language that is known`;
}

/** What of images and recordings these options expect. */
export function expectedMedia({ expectedInputs = [] }: LanguageModelOptions): Media[] {
  const types = Array.from(expectedInputs, ({ type }) => `${type}`);
  return MEDIA.filter((media) => types.includes(media));
}

/** Why no answer can be drawn with these; undefined: it can. */
export function checkSampling({ temperature = 0, topK = 1 }: LanguageModelOptions): string | undefined {
  if (!(Number(temperature) >= 0)) return `temperature ${String(temperature)}: expected a number of at least 0`;
  return Number(topK) >= 1 ? undefined : `topK ${String(topK)}: expected a number of at least 1`;
}

/** @throws TypeError for what is no tool, and what its schema throws */
export function readTools(tools: LanguageModelOptions['tools'] = []): Required<LanguageModelTool>[] {
  const names = new Set<string>();
  return Array.from(tools, (tool, index) => {
    const { name, description, inputSchema, execute } = dictionary(tool, `tool ${index}`);
    const wrong = (what: string): TypeError => new TypeError(`tool ${index}: ${what}`);
    if (!name || !description) throw wrong('it needs a name and a description');
    const own = `${name as string}`;
    if (names.has(own)) throw wrong(`two are called ${own}`);
    names.add(own);
    if (!isObject(inputSchema)) throw wrong('inputSchema is no object');
    if (typeof execute !== 'function') throw wrong('execute is no function');
    const schema = JSON.parse(JSON.stringify(inputSchema)) as Record<string, unknown>;
    const { type, properties = {}, required = [] } = schema;
    if (type !== 'object' || !isObject(properties) || !Array.isArray(required))
      throw wrong('inputSchema is no schema of an object');
    const call = execute as LanguageModelTool['execute'];
    return { name: own, description: `${description as string}`, inputSchema: schema, execute: call };
  });
}

const unsupported = (message: string): DOMException => new DOMException(message, 'NotSupportedError');
