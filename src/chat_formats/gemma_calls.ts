import { isObject } from '../base/json.js';
import type { AnswerInput, Steps, Take } from './answer_input.js';
import type { FUNCTION_GEMMA, GEMMA } from './call_shapes.js';
import { readMarkedCalls } from './json_calls.js';
import { jsonOfWord } from './json_text.js';
import { argumentsOf, type ToolCall } from './tools.js';

/** FunctionGemma's and Gemma 4's: `<|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>`. */
export const readGemmaCalls = ({ open, close, quote }: typeof GEMMA | typeof FUNCTION_GEMMA) =>
  readMarkedCalls(open, close, function* (input, out) {
    yield* input.literal('call');
    yield* input.literal(':');
    yield* input.blanks();
    const name = yield* input.word(/[\w.-]/);
    if (name === '' || (yield* input.peek(1)) !== '{') return false;
    out.call(name);
    yield* object(input, quote, out.arguments);
    return true;
  });

/** {key:value,...} as JSON. @param take gets it a member at a time */
function* object(input: AnswerInput, quote: string, take: Take = () => {}): Steps<string | undefined> {
  let whole = '';
  const add = (text: string): void => {
    whole += text;
    take(text);
  };
  add('{');
  const isWhole = yield* input.items('}', function* () {
    const key = yield* keyOf(input, quote);
    if (key === undefined || !(yield* input.between(':'))) return false;
    const of = yield* value(input, quote);
    if (of === undefined) return false;
    add(`${whole === '{' ? '' : ', '}${JSON.stringify(key)}: ${of}`);
    return true;
  });
  if (!isWhole) return undefined;
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
    return word === '' || (yield* input.peek(1)) === '' ? undefined : jsonOfWord(word);
  }
  const items: string[] = [];
  const isWhole = yield* input.items(']', function* () {
    const of = yield* value(input, quote);
    if (of !== undefined) items.push(of);
    return of !== undefined;
  });
  return isWhole ? `[${items.join(', ')}]` : undefined;
}

export const gemmaArguments =
  (quote: string) =>
  ({ function: { arguments: text } }: ToolCall): string => {
    const written = (of: unknown): string => {
      if (typeof of === 'string') return quote + of + quote;
      if (Array.isArray(of)) return `[${of.map(written).join(',')}]`;
      if (!isObject(of)) return JSON.stringify(of);
      const members = Object.entries(of).map(([key, inner]) => `${key}:${written(inner)}`);
      return `{${members.join(',')}}`;
    };
    return written(argumentsOf(text) ?? { arguments: text });
  };
