import { isObject } from '../base/json.js';
import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { jsonWord, parsed } from './json_text.js';
import { argumentsOf, type Tool, type ToolCall } from './tools.js';

const [FUNCTION, PARAMETER] = ['<function=', '<parameter='];
const [END_FUNCTION, END_PARAMETER] = ['</function>', '</parameter>'];

/**
 * Qwen3-Coder's: `<function=name>`, then `<parameter=key>`, a line's end, the value and a line's end, `</parameter>` for each, then
 * `</function>`. Texts are written as they are, other values as JSON.
 */
export function* readXmlCall(input: AnswerInput, out: AnswerOut): Steps<boolean> {
  if (!(yield* input.literal(FUNCTION))) return false;
  const name = yield* tag(input);
  if (name === undefined) return false;
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
    out.arguments(`${count > 0 ? ', ' : ''}${JSON.stringify(key)}: ${inJson(text, typesOf(out.tool(name), key))}`);
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

/** Types that the schema gives an argument; empty where it says nothing of them. */
function typesOf(tool: Tool | undefined, key: string): readonly unknown[] {
  const properties = tool?.function.parameters?.['properties'];
  const schema = isObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
  const types = (of: unknown): readonly unknown[] => {
    if (!isObject(of)) return [];
    const options = of.anyOf ?? of.oneOf;
    if (Array.isArray(options)) return options.flatMap(types);
    if (Array.isArray(of.enum)) return of.enum.map((value) => (typeof value === 'string' ? 'string' : 'other'));
    if (of.const !== undefined) return [typeof of.const === 'string' ? 'string' : 'other'];
    return Array.isArray(of.type) ? of.type : of.type === undefined ? [] : [of.type];
  };
  return types(schema);
}

function inJson(text: string, types: readonly unknown[]): string {
  const isText = JSON.stringify(text);
  if (types.length > 0 && types.every((type) => type === 'string')) return isText;
  const trimmed = text.trim();
  const value = parsed(jsonWord(trimmed));
  if (value === undefined) return isText;
  // What a text may be as well is one, unless it is a list or an object, or a word that isn't a text's.
  if (types.includes('string') && !(value === null && types.includes('null'))) return isText;
  return JSON.stringify(value);
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
