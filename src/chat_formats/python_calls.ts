import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { argumentsOf, type ToolCall } from './tools.js';

const START = '<|tool_call_start|>';
const END = '<|tool_call_end|>';

/** LFM2's: `<|tool_call_start|>[name(argument="...", ...), ...]<|tool_call_end|>`. */
export function* readLfmCalls(input: AnswerInput, out: AnswerOut): Steps {
  while ((yield* input.until([START], out.text)) !== undefined) {
    input.keep();
    yield* input.blanks();
    const read = yield* readPythonCalls(input, out, false);
    const text = input.kept();
    if (!read) out.text(text);
    if (out.full) return;
    yield* input.blanks();
    if (yield* input.literal(END)) yield* input.blanks();
  }
}

/** A list of calls as Python writes them. @param bare calls are those of tools that there are alone */
export function* readPythonCalls(input: AnswerInput, out: AnswerOut, bare: boolean): Steps<boolean> {
  if (!(yield* input.literal('['))) return false;
  for (let count = 0; !out.full;) {
    yield* input.blanks();
    if (yield* input.literal(']')) return count > 0;
    if (yield* input.literal(',')) continue;
    if (!(yield* readPythonCall(input, out, bare))) return count > 0;
    count++;
  }
  return true;
}

/** name(argument=value, ...). Of Llama's built-in tools, `name.call(...)`, the name alone counts. */
export function* readPythonCall(input: AnswerInput, out: AnswerOut, bare = true): Steps<boolean> {
  const written = yield* input.word(/[\w.-]/);
  const name = out.tool(written) ? written : written.replace(/\.call$/, '');
  if (name === '' || (bare && !out.tool(name)) || !(yield* input.literal('('))) return false;
  out.call(name);
  out.arguments('{');
  for (let count = 0; ; count++) {
    yield* input.blanks();
    if (yield* input.literal(')')) break;
    if (yield* input.literal(',')) yield* input.blanks();
    const key = yield* input.word(/\w/);
    yield* input.blanks();
    if (key === '' || !(yield* input.literal('='))) return true;
    yield* input.blanks();
    const value = yield* pythonValue(input);
    if (value === undefined) return true;
    out.arguments(`${count > 0 ? ', ' : ''}${JSON.stringify(key)}: ${value}`);
  }
  out.arguments('}');
  return true;
}

const WORDS: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null' };

/** A value as Python writes it, as JSON; undefined where it isn't whole. */
function* pythonValue(input: AnswerInput): Steps<string | undefined> {
  const next = yield* input.peek(1);
  if (next === '"' || next === "'") return yield* pythonString(input, next);
  if (next === '[' || next === '(') return yield* pythonItems(input, next === '[' ? ']' : ')');
  if (next === '{') return yield* pythonItems(input, '}');
  const word = yield* input.word(/[-+.\w]/);
  if (word === '' || (yield* input.peek(1)) === '') return undefined;
  const known = WORDS[word] ?? word;
  try {
    return JSON.stringify(JSON.parse(known));
  } catch {
    return JSON.stringify(word);
  }
}

function* pythonItems(input: AnswerInput, close: string): Steps<string | undefined> {
  input.take(1);
  const items: string[] = [];
  for (;;) {
    yield* input.blanks();
    if (yield* input.literal(close)) break;
    if (yield* input.literal(',')) continue;
    const value = yield* pythonValue(input);
    if (value === undefined) return undefined;
    if (close !== '}') {
      items.push(value);
      continue;
    }
    yield* input.blanks();
    if (!(yield* input.literal(':'))) return undefined;
    yield* input.blanks();
    const of = yield* pythonValue(input);
    if (of === undefined) return undefined;
    items.push(`${value.startsWith('"') ? value : JSON.stringify(value)}: ${of}`);
  }
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

export function writePythonCalls(calls: readonly ToolCall[]): string {
  const written = calls.map(({ function: { name, arguments: text } }) => {
    const values = argumentsOf(text);
    const written = values && Object.entries(values).map(([key, value]) => `${key}=${inPython(value)}`);
    return `${name}(${written?.join(', ') ?? text})`;
  });
  return `${START}[${written.join(', ')}]${END}`;
}
