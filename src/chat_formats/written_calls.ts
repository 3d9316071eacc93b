/** Calls that aren't written as JSON: as XML, as Python's, and Gemma's; and how they are told to a model. */

import { isObject, jsonText, parsed, partAt, typeOf } from '../base/json.js';
import type { AnswerInput, Steps, Take } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { argumentsOf, type Tool, type ToolCall } from './tools.js';

/** Takes a call; false where there is none. @param bare no mark tells it: it is a call only of a tool that there is */
export type ReadCall = (input: AnswerInput, out: AnswerOut, bare?: boolean) => Steps<boolean>;

/** A word as JSON: a text where it is no JSON itself. */
function jsonOfWord(word: string): string {
  const value = parsed(word);
  return JSON.stringify(value === undefined ? word : value);
}

const PYTHON: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null' };
/** As JSON has it, where it is a word of Python's. */
const jsonWord = (word: string): string => PYTHON[word] ?? word;

/** Parts of a schema that are looked at for one value. */
const MAX_LOOKS = 1000;

const [FUNCTION, PARAMETER] = ['<function=', '<parameter='];
const [END_FUNCTION, END_PARAMETER] = ['</function>', '</parameter>'];

/**
 * Qwen3-Coder's: `<function=name>`, then `<parameter=key>`, a line's end, the value and a line's end, `</parameter>` for each, then
 * `</function>`. Texts are written as they are, other values as JSON.
 * @param bare `<function=` was there without `<tool_call>`, which the model sometimes forgets: it is a call only of a tool that there is
 */
export function* readXmlCall(input: AnswerInput, out: AnswerOut, bare = false): Steps<boolean> {
  if (!bare && !(yield* input.literal(FUNCTION))) return false;
  const name = yield* tag(input);
  if (name === undefined || (bare && !out.tool(name))) return false;
  out.call(name);
  out.arguments('{');
  for (let count = 0; ; count++) {
    yield* input.blanks();
    if (!(yield* input.literal(PARAMETER))) break;
    const key = yield* tag(input);
    if (key === undefined) return true;
    let value = '';
    // Some leave out the end of the last one.
    const stop = yield* input.until([END_PARAMETER, END_FUNCTION], (text) => (value += text), true);
    if (stop === undefined) return true;
    const text = value.replace(/^\r?\n/, '').replace(/\r?\n$/, '');
    out.arguments(`${count > 0 ? ', ' : ''}${JSON.stringify(key)}: ${inJson(text, out.tool(name), key)}`);
    if (stop === END_FUNCTION) {
      out.arguments('}');
      return true;
    }
  }
  // Cut off there may be more of them.
  const isCut = (yield* input.peek(END_FUNCTION.length)).length < END_FUNCTION.length;
  if (!isCut) out.arguments('}');
  yield* input.literal(END_FUNCTION);
  return true;
}

/** What stands before the bracket that ends a tag. */
function* tag(input: AnswerInput): Steps<string | undefined> {
  const name = yield* input.word(/[^>\n]/);
  return (yield* input.literal('>')) ? name.trim() : undefined;
}

/** The schema of an argument; undefined where the tool has none of it. */
function schemaOf(tool: Tool | undefined, key: string): unknown {
  const { properties, additionalProperties } = tool?.function.parameters ?? {};
  return isObject(properties) && Object.hasOwn(properties, key) ? properties[key] : additionalProperties;
}

/**
 * Whether a schema's types and lists have a value; undefined where it says nothing of them.
 * @param root what `$ref`s are within
 */
function has(schema: unknown, value: unknown, root: unknown, looks = { left: MAX_LOOKS }): boolean | undefined {
  if (!isObject(schema) || looks.left-- <= 0) return undefined;
  const within = (of: unknown): boolean | undefined => has(of, value, root, looks);
  const { type, enum: listed, const: only, allOf, $ref } = schema;
  const said: (boolean | undefined)[] = [];
  const types: unknown[] = [typeOf(value), ...(Number.isInteger(value) ? ['integer'] : [])];
  if (type !== undefined) said.push([type].flat().some((one) => types.includes(one)));
  const values = 'const' in schema ? [only] : listed;
  if (Array.isArray(values)) said.push(values.some((one) => jsonText(one) === jsonText(value)));
  if (typeof $ref === 'string') said.push(within(partAt(root, $ref)));
  if (Array.isArray(allOf)) said.push(...allOf.map(within));
  for (const options of [schema.anyOf, schema.oneOf]) {
    const each = Array.isArray(options) ? options.map(within) : [];
    if (each.length > 0) said.push(each.includes(true) || (each.includes(undefined) ? undefined : false));
  }
  return said.includes(false) ? false : said.includes(true) || undefined;
}

/** What could be a text is one, where its schema says so, unless it could be a list or an object, or null. */
function inJson(text: string, tool: Tool | undefined, key: string): string {
  const value = parsed(jsonWord(text.trim()));
  const mayBe = (of: unknown): boolean => has(schemaOf(tool, key), of, tool?.function.parameters) === true;
  const isText = value === undefined || (mayBe(text) && !(typeof value === 'object' && mayBe(value)));
  return JSON.stringify(isText ? text : value);
}

/** A parameter for each, and a line's end. */
export function xmlArguments({ function: { arguments: text } }: ToolCall): string {
  const values = argumentsOf(text);
  if (!values) return `${text}\n`;
  const inXml = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));
  return Object.entries(values)
    .map(([key, value]) => `${PARAMETER}${key}>\n${inXml(value)}\n${END_PARAMETER}\n`)
    .join('');
}

/**
 * name(argument=value, ...). Of Llama's built-in tools, `name.call(...)`, the name alone counts.
 * @param bare it is a call only of a tool that there is
 */
export function* readPythonCall(input: AnswerInput, out: AnswerOut, bare = false): Steps<boolean> {
  const written = yield* input.word(/[\w.-]/);
  const name = out.tool(written) ? written : written.replace(/\.call$/, '');
  if (name === '' || (bare && !out.tool(name)) || (yield* input.peek(1)) !== '(') return false;
  out.call(name);
  const member = function* (): Steps<string | undefined> {
    const key = yield* input.word(/\w/);
    const value = key !== '' && (yield* input.between('=')) ? yield* pythonValue(input) : undefined;
    return value === undefined ? undefined : `${JSON.stringify(key)}: ${value}`;
  };
  yield* input.collect(')', member, out.arguments, '{}');
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

function pythonItems(input: AnswerInput, close: string): Steps<string | undefined> {
  return input.collect(close, function* () {
    const value = yield* pythonValue(input);
    if (value === undefined || close !== '}') return value;
    const of = (yield* input.between(':')) ? yield* pythonValue(input) : undefined;
    return of === undefined ? undefined : `${value.startsWith('"') ? value : JSON.stringify(value)}: ${of}`;
  });
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

/** `call:name{key:<|"|>text<|"|>,other:1}`, with this mark on both sides of a text. */
export const readGemmaCall = (quote: string): ReadCall =>
  function* (input, out) {
    yield* input.literal('call');
    yield* input.literal(':');
    yield* input.blanks();
    const name = yield* input.word(/[\w.-]/);
    if (name === '' || (yield* input.peek(1)) !== '{') return false;
    out.call(name);
    yield* object(input, quote, out.arguments);
    return true;
  };

/** {key:value,...} as JSON. @param take gets it a member at a time */
function object(input: AnswerInput, quote: string, take?: Take): Steps<string | undefined> {
  const member = function* (): Steps<string | undefined> {
    const key = yield* keyOf(input, quote);
    const of = key !== undefined && (yield* input.between(':')) ? yield* value(input, quote) : undefined;
    return of === undefined ? undefined : `${JSON.stringify(key)}: ${of}`;
  };
  return input.collect('}', member, take);
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
  if (next === '[') return yield* input.collect(']', () => value(input, quote));
  const word = (yield* input.word(/[^,{}[\]]/)).trim();
  return word === '' || (yield* input.peek(1)) === '' ? undefined : jsonOfWord(word);
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
