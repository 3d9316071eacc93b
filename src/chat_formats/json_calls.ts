import type { AnswerInput, Steps, Take } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { jsonString, jsonValue, parsed } from './json_text.js';
import { readPythonCall, readPythonCalls } from './python_calls.js';
import { argumentsText, type ToolCall } from './tools.js';
import { readXmlCall } from './xml_calls.js';

const ARGUMENTS = ['arguments', 'parameters'];

/**
 * Reads {"name": ..., "arguments": {...}}.
 * @param bare nothing marks it as a call: it is one only of a tool that there is, and by the keys that a call has
 * @returns false for what is no call: it was taken, and is in `input.kept()` where `keep` was called before
 */
function* readJsonCall(input: AnswerInput, out: AnswerOut, bare: boolean): Steps<boolean> {
  if (!(yield* input.literal('{'))) return false;
  let name: string | undefined;
  let begun = false;
  let early = '';
  for (;;) {
    yield* input.blanks();
    if (yield* input.literal('}')) break;
    if (yield* input.literal(',')) continue;
    const key = yield* jsonString(input);
    yield* input.blanks();
    if (key === undefined || !(yield* input.literal(':'))) return begun;
    yield* input.blanks();
    if (key === 'name' && name === undefined) {
      name = yield* jsonString(input);
      if (name === undefined || name === '' || (bare && !out.tool(name))) return false;
    } else if (ARGUMENTS.includes(key) && !begun) {
      const first = yield* input.peek(1);
      if (bare && !'{"n'.includes(first)) return false;
      if (name === undefined) yield* readArguments(input, (piece) => (early += piece));
      else {
        out.call(name);
        begun = true;
        yield* readArguments(input, out.arguments);
      }
    } else {
      if (bare && name === undefined && key !== 'type' && key !== 'id') return false;
      if (!(yield* jsonValue(input, () => {}))) return begun;
    }
  }
  if (name === undefined) return false;
  if (!begun) {
    out.call(name);
    out.arguments(early === '' ? '{}' : early);
  }
  return true;
}

/** Some models write them as JSON within a JSON string, or null for none. */
export function* readArguments(input: AnswerInput, take: Take): Steps {
  const next = yield* input.peek(1);
  if (next === '"') {
    const text = yield* jsonString(input);
    if (text !== undefined) take(parsed(text) === undefined ? JSON.stringify(text) : text);
  } else if (next === 'n') {
    yield* jsonValue(input, () => {});
    take('{}');
  } else yield* jsonValue(input, take);
}

/** A list of calls, from its bracket on. @returns whether there were any */
function* readJsonCalls(input: AnswerInput, out: AnswerOut, bare: boolean): Steps<boolean> {
  if (!(yield* input.literal('['))) return false;
  for (let count = 0; !out.full;) {
    yield* input.blanks();
    if (yield* input.literal(']')) return count > 0;
    if (yield* input.literal(',')) continue;
    if (!(yield* readJsonCall(input, out, bare))) return count > 0;
    count++;
  }
  return true;
}

/** Calls between marks: `<tool_call>{...}</tool_call>`, of one or a list, or as XML within (Qwen3-Coder). */
export const readMarkedCalls = (open: string, close: string | undefined) =>
  function* (input: AnswerInput, out: AnswerOut): Steps {
    while ((yield* input.until([open], out.text)) !== undefined) {
      input.keep();
      yield* input.blanks();
      const next = yield* input.peek(1);
      const read =
        next === '{'
          ? yield* readJsonCall(input, out, false)
          : next === '['
            ? yield* readJsonCalls(input, out, false)
            : next === '<'
              ? yield* readXmlCall(input, out)
              : false;
      const text = input.kept();
      if (!read) out.text(open + text);
      if (out.full) return;
      if (!read || close === undefined) continue;
      yield* input.blanks();
      yield* input.literal(close);
    }
  };

/** Mistral's: `[TOOL_CALLS] [{...}]`, or `[TOOL_CALLS]name[ARGS]{...}` for each. */
export function* readMistralCalls(input: AnswerInput, out: AnswerOut): Steps {
  while ((yield* input.until(['[TOOL_CALLS]'], out.text)) !== undefined) {
    yield* input.blanks();
    const next = yield* input.peek(1);
    if (next === '[') yield* readJsonCalls(input, out, false);
    else if (next === '{') yield* readJsonCall(input, out, false);
    else {
      const name = (yield* input.word(/[\w.-]/)).trim();
      yield* input.blanks();
      if (yield* input.literal('[CALL_ID]')) yield* input.word(/\w/);
      const marked = yield* input.literal('[ARGS]');
      yield* input.blanks();
      if (name === '' || (!marked && (yield* input.peek(1)) !== '{')) continue;
      out.call(name);
      yield* readArguments(input, out.arguments);
    }
    if (out.full) return;
  }
}

const PYTHON_TAG = '<|python_tag|>';
const FENCE = '```';

/**
 * Llama 3's, which nothing marks: an answer that begins with {"name": ..., "parameters": {...}}, of a tool that there is, is a call.
 * More may follow behind `;` or a blank; a list, a code fence or `<|python_tag|>` may be around them. With the tag, or as a list, also
 * name(argument="...").
 */
export function* readBareCalls(input: AnswerInput, out: AnswerOut): Steps {
  input.keep();
  yield* input.blanks();
  if (yield* input.literal(FENCE)) {
    yield* input.word(/[\w-]/);
    yield* input.blanks();
  }
  const tagged = yield* input.literal(PYTHON_TAG);
  yield* input.blanks();
  let count = 0;
  for (;;) {
    const next = yield* input.peek(1);
    const read =
      next === '{'
        ? yield* readJsonCall(input, out, true)
        : next === '['
          ? yield* readBareList(input, out)
          : tagged && count === 0 && (yield* readPythonCall(input, out));
    if (!read) break;
    count++;
    if (out.full) return;
    input.kept();
    yield* input.blanks();
    if (!(yield* input.literal(';'))) yield* input.literal(',');
    yield* input.blanks();
    if (yield* input.literal(FENCE)) yield* input.blanks();
    input.keep();
  }
  const text = input.kept();
  if (count === 0 || text.trim() !== '') out.text(count === 0 ? text : text.trimStart());
  if (count > 0) return yield* input.rest(out.text);
  // Text may come before a tag.
  if ((yield* input.until([PYTHON_TAG], out.text)) === undefined) return;
  yield* input.blanks();
  input.keep();
  const read =
    (yield* input.peek(1)) === '{' ? yield* readJsonCall(input, out, true) : yield* readPythonCall(input, out);
  const rest = input.kept();
  if (!read) out.text(rest);
  if (!out.full) yield* input.rest(out.text);
}

function* readBareList(input: AnswerInput, out: AnswerOut): Steps<boolean> {
  const start = yield* input.peek(2);
  if (/^\[[\s{]/.test(start)) return yield* readJsonCalls(input, out, true);
  return yield* readPythonCalls(input, out, true);
}

/** {"name": ..., "arguments": {...}} */
export const jsonCall =
  (key: string) =>
  (call: ToolCall): string =>
    `{"name": ${JSON.stringify(call.function.name)}, "${key}": ${argumentsText(call)}}`;
