import type { LanguageModelOptions, LanguageModelPrompt, LanguageModelSamplingMode } from './types.js';

/** What modes make of the temperature that the model's makers recommend, or of 1. */
export const MODES: Readonly<Record<LanguageModelSamplingMode, number>> = {
  'most-predictable': 0,
  predictable: 0.5,
  balanced: 1,
  creative: 1.25,
  'most-creative': 1.5,
};

export interface TextMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
  /** The answer begins like this, and goes on. */
  readonly prefix?: true;
}

/**
 * The messages of a prompt.
 * @param isFirst they begin a session: a system's message may be the first of them
 * @param isAsked an answer is wanted: its beginning may be the last of them
 * @throws TypeError for what is none, DOMException `NotSupportedError` for what a model of texts can't read, `SyntaxError` for a
 *   beginning that isn't the last message
 */
export function readMessages(prompt: LanguageModelPrompt, isFirst: boolean, isAsked = false): TextMessage[] {
  if (typeof prompt === 'string') return [{ role: 'user', content: prompt }];
  if (!Array.isArray(prompt)) throw new TypeError('a prompt is a text, or a list of messages {role, content}');
  return prompt.map((message: unknown, index) => {
    const { role, content, prefix } = (message ?? {}) as Record<string, unknown>;
    if (role !== 'system' && role !== 'user' && role !== 'assistant') {
      throw new TypeError(`message ${index}: role is ${String(role)}; expected system, user or assistant`);
    }
    if (role === 'system' && !isFirst)
      throw unsupported(`message ${index}: only initialPrompts may have a system's message`);
    if (role === 'system' && index > 0) throw new TypeError(`message ${index}: a system's message must be the first`);
    if (prefix && (role !== 'assistant' || index < prompt.length - 1))
      throw new DOMException(`message ${index}: prefix is for the assistant's message, as the last`, 'SyntaxError');
    if (prefix && !isAsked) throw unsupported(`message ${index}: only what is prompted may have a beginning (prefix)`);
    return { role, content: textOf(content, index), ...(prefix === true && { prefix }) };
  });
}

function textOf(content: unknown, index: number): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw new TypeError(`message ${index}: content is neither a text nor a list of parts`);
  const texts = content.map((part: unknown) => {
    const { type, value } = (part ?? {}) as Record<string, unknown>;
    if (type !== 'text') throw unsupported(`message ${index}: content of type ${String(type)}; this model reads text`);
    if (typeof value !== 'string') throw new TypeError(`message ${index}: the value of a text is no string`);
    return value;
  });
  return texts.join('');
}

/** Questions that have their answers, and texts of the user that have none yet. Neighbours of one role are one. */
export function turnsOf(
  before: readonly string[],
  messages: readonly TextMessage[],
): { readonly turns: { user: string; answer: string; tokens: number[] }[]; readonly pending: string[] } {
  const turns: { user: string; answer: string; tokens: number[] }[] = [];
  let pending = [...before];
  for (const [index, { role, content }] of messages.entries()) {
    if (role === 'user') {
      pending.push(content);
      continue;
    }
    const last = turns.at(-1);
    if (last && pending.length === 0 && messages[index - 1]?.role === 'assistant') last.answer += `\n\n${content}`;
    else turns.push({ user: pending.join('\n\n'), answer: content, tokens: [] });
    pending = [];
  }
  return { turns, pending };
}

/** Why there can be no session with these options; undefined: there can. @throws TypeError, RangeError for values that are none */
export function checkOptions({
  temperature,
  topK,
  samplingMode,
  expectedInputs = [],
  expectedOutputs = [],
  tools = [],
}: LanguageModelOptions): string | undefined {
  const isNumber = (value: unknown): value is number => typeof value === 'number' && !Number.isNaN(value);
  if (temperature !== undefined && !(isNumber(temperature) && temperature >= 0)) {
    throw new RangeError(`temperature ${String(temperature)}: expected a number of at least 0`);
  }
  if (topK !== undefined && !(isNumber(topK) && topK >= 1)) {
    throw new RangeError(`topK ${String(topK)}: expected a number of at least 1`);
  }
  if (samplingMode !== undefined && !Object.hasOwn(MODES, samplingMode)) {
    throw new TypeError(`samplingMode ${String(samplingMode)}: expected ${Object.keys(MODES).join(', ')}`);
  }
  if (samplingMode !== undefined && temperature !== undefined) {
    throw new TypeError('samplingMode and temperature say the same; give one of them');
  }
  const other = [...expectedInputs, ...expectedOutputs].find(({ type }) => type !== 'text');
  if (other) return `${String(other.type)} is not supported; this model reads and writes text`;
  return tools.length > 0 ? 'tools are not supported' : undefined;
}

const unsupported = (message: string): DOMException => new DOMException(message, 'NotSupportedError');
