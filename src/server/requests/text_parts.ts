import { isObject, shortened, show } from '../../base/json.js';
import type { ChatMessage } from '../../index.js';
import { badRequest } from '../api_error.js';

/** In the types of parts that are no texts, such as `image_url` and `input_audio`. */
const MEDIA = [
  ['image', 'images'],
  ['audio', 'sounds'],
  ['video', 'videos'],
  ['file', 'files'],
  ['document', 'documents'],
] as const;

/**
 * The text of a message's content: a text, or parts of some types that have one.
 * @param types of parts that are texts; those of `left` say nothing of the conversation, and are left out
 * @param isEmptyTaken whether a list of no parts is
 * @param name the content's place in the body, for errors
 * @throws ApiError 400
 */
export function textOfParts(
  content: unknown,
  name: string,
  {
    types,
    left = [],
    between = '',
    isEmptyTaken = true,
  }: {
    readonly types: readonly string[];
    readonly left?: readonly string[];
    readonly between?: string;
    readonly isEmptyTaken?: boolean;
  },
): string {
  if (typeof content === 'string') return content;
  const expected = `a text, or a list of parts {"type": "${types[0]}", "text": "..."}`;
  if (!Array.isArray(content) || (content.length === 0 && !isEmptyTaken)) {
    throw badRequest(`${name} is ${content === undefined ? 'missing' : show(content)}; expected ${expected}`, name);
  }
  const texts: string[] = [];
  for (const [index, part] of content.entries()) {
    const at = `${name}[${index}]`;
    const { type } = (isObject(part) ? part : {}) as { readonly type?: unknown };
    if (typeof type === 'string' && left.includes(type)) continue;
    if (typeof type !== 'string' || !types.includes(type)) {
      const media = MEDIA.find(([part]) => typeof type === 'string' && type.includes(part))?.[1];
      const why =
        media === undefined
          ? "which this server doesn't have"
          : `${media} aren't supported: this model takes text only`;
      const what = typeof type === 'string' ? `of type '${shortened(type)}', ${why}` : show(part);
      throw badRequest(`${at} is ${what}; expected ${expected}`, at);
    }
    texts.push(textAt(part as Record<string, unknown>, 'text', at));
  }
  return texts.join(between);
}

/** A text of an item. @param name the item's place in the body @throws ApiError 400 */
export function textAt(item: Readonly<Record<string, unknown>>, key: string, name: string): string {
  const value = item[key];
  if (typeof value === 'string') return value;
  throw badRequest(`${name}.${key} is ${show(value)}; expected a text`, `${name}.${key}`);
}

/** System messages at the beginning become one: many templates take one alone. */
export function withOneSystem(messages: readonly ChatMessage[]): ChatMessage[] {
  const count = messages.findIndex(({ role }) => role !== 'system');
  const leading = messages.slice(0, count < 0 ? messages.length : count);
  if (leading.length < 2) return [...messages];
  const content = leading.map((message) => message.content ?? '').join('\n\n');
  return [{ role: 'system', content }, ...messages.slice(leading.length)];
}
