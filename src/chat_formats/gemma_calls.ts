import { isObject } from '../base/json.js';
import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { argumentsOf, type ToolCall } from './tools.js';

/** What is around a call, and on both sides of a text in it. */
export interface GemmaMarks {
  readonly open: string;
  readonly close: string;
  readonly quote: string;
}

export const GEMMA: GemmaMarks = { open: '<|tool_call>', close: '<tool_call|>', quote: '<|"|>' };
export const FUNCTION_GEMMA: GemmaMarks = {
  open: '<start_function_call>',
  close: '<end_function_call>',
  quote: '<escape>',
};

/** FunctionGemma's and Gemma 4's: `<|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>`. */
export const readGemmaCalls = ({ open, close, quote }: GemmaMarks) =>
  function* (input: AnswerInput, out: AnswerOut): Steps {
    while ((yield* input.until([open], out.text)) !== undefined) {
      input.keep();
      yield* input.blanks();
      yield* input.literal('call');
      yield* input.literal(':');
      yield* input.blanks();
      const name = yield* input.word(/[\w.-]/);
      const begins = name !== '' && (yield* input.peek(1)) === '{';
      const text = input.kept();
      if (!begins) {
        out.text(open + text);
        continue;
      }
      out.call(name);
      const value = yield* object(input, quote, out.arguments);
      if (value !== undefined && out.full) return;
      yield* input.blanks();
      if (yield* input.literal(close)) yield* input.blanks();
    }
  };

/** {key:value,...} as JSON. @param take gets it a member at a time; otherwise it is returned */
function* object(input: AnswerInput, quote: string, take?: (text: string) => void): Steps<string | undefined> {
  let whole = '';
  const add = (text: string): void => {
    whole += text;
    take?.(text);
  };
  input.take(1);
  add('{');
  for (let count = 0; ;) {
    yield* input.blanks();
    if (yield* input.literal('}')) break;
    if (yield* input.literal(',')) continue;
    const key = yield* keyOf(input, quote);
    yield* input.blanks();
    if (key === undefined || !(yield* input.literal(':'))) return undefined;
    yield* input.blanks();
    const of = yield* value(input, quote);
    if (of === undefined) return undefined;
    add(`${count++ > 0 ? ', ' : ''}${JSON.stringify(key)}: ${of}`);
  }
  add('}');
  return whole;
}

function* keyOf(input: AnswerInput, quote: string): Steps<string | undefined> {
  if (yield* input.literal(quote)) return yield* quoted(input, quote);
  const key = (yield* input.word(/[^:{}[\],]/)).trim();
  return key === '' ? undefined : key.replace(/^"(.*)"$/, '$1');
}

function* quoted(input: AnswerInput, quote: string): Steps<string | undefined> {
  let text = '';
  return (yield* input.until([quote], (piece) => (text += piece), true)) === undefined ? undefined : text;
}

function* value(input: AnswerInput, quote: string): Steps<string | undefined> {
  if (yield* input.literal(quote)) {
    const text = yield* quoted(input, quote);
    return text === undefined ? undefined : JSON.stringify(text);
  }
  const next = yield* input.peek(1);
  if (next === '{') return yield* object(input, quote);
  if (next !== '[') {
    const word = (yield* input.word(/[^,{}[\]]/)).trim();
    if (word === '' || (yield* input.peek(1)) === '') return undefined;
    try {
      return JSON.stringify(JSON.parse(word));
    } catch {
      return JSON.stringify(word);
    }
  }
  input.take(1);
  const items: string[] = [];
  for (;;) {
    yield* input.blanks();
    if (yield* input.literal(']')) return `[${items.join(', ')}]`;
    if (yield* input.literal(',')) continue;
    const of = yield* value(input, quote);
    if (of === undefined) return undefined;
    items.push(of);
  }
}

export const writeGemmaCalls =
  ({ open, close, quote }: GemmaMarks) =>
  (calls: readonly ToolCall[]): string => {
    const written = (of: unknown): string =>
      typeof of === 'string'
        ? quote + of + quote
        : Array.isArray(of)
          ? `[${of.map(written).join(',')}]`
          : isObject(of)
            ? `{${Object.entries(of).map(([key, inner]) => `${key}:${written(inner)}`).join(',')}}` // prettier-ignore
            : JSON.stringify(of);
    return calls
      .map(
        ({ function: { name, arguments: text } }) =>
          `${open}call:${name}${written(argumentsOf(text) ?? { arguments: text })}${close}`,
      )
      .join('');
  };
