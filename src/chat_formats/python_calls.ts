import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { jsonOfWord, jsonWord } from './json_text.js';
import { argumentsOf, type ToolCall } from './tools.js';

/**
 * name(argument=value, ...). Of Llama's built-in tools, `name.call(...)`, the name alone counts.
 * @param bare it is a call only of a tool that there is
 */
export function* readPythonCall(input: AnswerInput, out: AnswerOut, bare = false): Steps<boolean> {
  const written = yield* input.word(/[\w.-]/);
  const name = out.tool(written) ? written : written.replace(/\.call$/, '');
  if (name === '' || (bare && !out.tool(name)) || (yield* input.peek(1)) !== '(') return false;
  out.call(name);
  out.arguments('{');
  let between = '';
  const whole = yield* input.items(')', function* () {
    const key = yield* input.word(/\w/);
    if (key === '' || !(yield* input.between('='))) return false;
    const value = yield* pythonValue(input);
    if (value === undefined) return false;
    out.arguments(`${between}${JSON.stringify(key)}: ${value}`);
    between = ', ';
    return true;
  });
  if (whole) out.arguments('}');
  return true;
}

/** A value as Python writes it, as JSON; undefined where it isn't whole. */
function* pythonValue(input: AnswerInput): Steps<string | undefined> {
  const next = yield* input.peek(1);
  if (next === '"' || next === "'") return yield* pythonString(input, next);
  if (next === '[' || next === '(') return yield* pythonItems(input, next === '[' ? ']' : ')');
  if (next === '{') return yield* pythonItems(input, '}');
  const word = yield* input.word(/[-+.\w]/);
  if (word === '' || (yield* input.peek(1)) === '') return undefined;
  return jsonOfWord(jsonWord(word));
}

function* pythonItems(input: AnswerInput, close: string): Steps<string | undefined> {
  const items: string[] = [];
  const whole = yield* input.items(close, function* () {
    const value = yield* pythonValue(input);
    if (value === undefined) return false;
    if (close !== '}') {
      items.push(value);
      return true;
    }
    const of = (yield* input.between(':')) ? yield* pythonValue(input) : undefined;
    items.push(`${value.startsWith('"') ? value : JSON.stringify(value)}: ${of}`);
    return of !== undefined;
  });
  if (!whole) return undefined;
  return close === '}' ? `{${items.join(', ')}}` : `[${items.join(', ')}]`;
}

const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  r: '\r',
  b: '\b',
  f: '\f',
  v: '\v',
  a: '\x07',
  0: '\0',
  '\n': '',
};

function* pythonString(input: AnswerInput, quote: string): Steps<string | undefined> {
  const close = (yield* input.literal(quote.repeat(3))) ? quote.repeat(3) : quote;
  if (close.length === 1) input.take(1);
  let value = '';
  for (;;) {
    if (yield* input.literal(close)) return JSON.stringify(value);
    const next = yield* input.peek(1);
    if (next === '') return undefined;
    input.take(1);
    if (next !== '\\') {
      value += next;
      continue;
    }
    const letter = yield* input.peek(1);
    input.take(1);
    const digits = { x: 2, u: 4, U: 8 }[letter];
    if (digits !== undefined) {
      const code = Number.parseInt(yield* input.peek(digits), 16);
      input.take(digits);
      // Halves of a pair come one by one.
      value += code <= 0xffff ? String.fromCharCode(code) : code <= 0x10ffff ? String.fromCodePoint(code) : '';
    } else value += ESCAPES[letter] ?? (/["'\\/]/.test(letter) ? letter : `\\${letter}`);
  }
}

/** A JSON value as Python writes it. */
function inPython(value: unknown): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return `[${value.map(inPython).join(', ')}]`;
  if (typeof value === 'object') {
    return `{${Object.entries(value)
      .map(([key, of]) => `${JSON.stringify(key)}: ${inPython(of)}`)
      .join(', ')}}`;
  }
  return JSON.stringify(value);
}

/** As Python's: key=value, ... */
export function pythonArguments({ function: { arguments: text } }: ToolCall): string {
  const values = argumentsOf(text);
  if (!values) return text;
  return Object.entries(values)
    .map(([key, value]) => `${key}=${inPython(value)}`)
    .join(', ');
}
