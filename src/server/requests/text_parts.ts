import { isObject, shortened, show } from '../../base/json.js';
import type { ChatMessage } from '../../index.js';
import { badRequest } from '../api_error.js';

/**
 * The text of a message's content: a text, or parts of some types that have one.
 * @param types of parts that are texts; those of `left` say nothing of the conversation, and are left out
 * @param name the content's place in the body, for errors
 * @throws ApiError 400
 */
export function textOfParts(
  content: unknown,
  name: string,
  { types, left = [], between = '' }: { types: readonly string[]; left?: readonly string[]; between?: string },
): string {
  if (typeof content === 'string') return content;
  const expected = `a text, or a list of parts {"type": "${types[0]}", "text": "..."}`;
  if (!Array.isArray(content)) {
    throw badRequest(`${name} is ${content === undefined ? 'missing' : show(content)}; expected ${expected}`, name);
  }
  const texts: string[] = [];
  for (const [index, part] of content.entries()) {
    const at = `${name}[${index}]`;
    const { type, text } = (isObject(part) ? part : {}) as { readonly type?: unknown; readonly text?: unknown };
    if (typeof type === 'string' && left.includes(type)) continue;
    if (typeof type !== 'string' || !types.includes(type)) {
      const what =
        typeof type === 'string' ? `of type '${shortened(type)}', which this server doesn't have` : show(part);
      throw badRequest(`${at} is ${what}; expected ${expected}`, at);
    }
    if (typeof text !== 'string') throw badRequest(`${at}.text is ${show(text)}; expected a text`, `${at}.text`);
    texts.push(text);
  }
  return texts.join(between);
}

/** System messages at the beginning become one: many templates take one alone. */
export function withOneSystem(messages: readonly ChatMessage[]): ChatMessage[] {
  const count = messages.findIndex(({ role }) => role !== 'system');
  const leading = messages.slice(0, count < 0 ? messages.length : count);
  if (leading.length < 2) return [...messages];
  const content = leading.map((message) => message.content ?? '').join('\n\n');
  return [{ role: 'system', content }, ...messages.slice(leading.length)];
}
