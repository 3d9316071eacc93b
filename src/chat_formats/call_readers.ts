/** How answers of each format are read: their calls, and what is text. */

import { parsed } from '../base/json.js';
import type { AnswerInput, Steps, Take } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { CALL_SHAPES, type CallFormatName, DEEPSEEK, FUNCTION_GEMMA, GEMMA, HARMONY, LFM } from './call_shapes.js';
import { type ReadCall, readGemmaCall, readPythonCall, readXmlCall } from './written_calls.js';

const ARGUMENTS = ['arguments', 'parameters'];

/**
 * Reads {"name": ..., "arguments": {...}}.
 * @param bare nothing marks it as a call: it is one only of a tool that there is, and by the keys that a call has
 * @returns false for what is no call: it was taken, and is in `input.kept()` where `keep` was called before
 */
function* readJsonCall(input: AnswerInput, out: AnswerOut, bare: boolean): Steps<boolean> {
  if ((yield* input.peek(1)) !== '{') return false;
  let name: string | undefined;
  let begun = false;
  let early = '';
  const member = function* (): Steps<boolean> {
    const key = yield* input.jsonString();
    if (key === undefined || !(yield* input.between(':'))) return false;
    if (key === 'name' && name === undefined) {
      name = yield* input.jsonString();
      return !!name && (!bare || out.tool(name) !== undefined);
    }
    if (ARGUMENTS.includes(key) && !begun) {
      if (bare && !'{"n'.includes(yield* input.peek(1))) return false;
      begun = name !== undefined;
      if (name !== undefined) out.call(name);
      yield* readArguments(input, begun ? out.arguments : (piece) => (early += piece));
      return true;
    }
    if (bare && name === undefined && key !== 'type' && key !== 'id') return false;
    return yield* input.jsonValue(() => {});
  };
  const whole = yield* input.items('}', member);
  if (begun || !whole || name === undefined) return begun;
  out.call(name);
  out.arguments(early === '' ? '{}' : early);
  return true;
}

/** Some models write them as JSON within a JSON string, or null for none. */
function* readArguments(input: AnswerInput, take: Take): Steps {
  const next = yield* input.peek(1);
  if (next === '"') {
    const text = yield* input.jsonString();
    if (text !== undefined) take(parsed(text) === undefined ? JSON.stringify(text) : text);
  } else if (next === 'n') {
    yield* input.jsonValue(() => {});
    take('{}');
  } else yield* input.jsonValue(take);
}

/** A list of calls, from its bracket on. @returns whether there were any */
function* readList(input: AnswerInput, out: AnswerOut, one: ReadCall): Steps<boolean> {
  const before = out.calls;
  yield* input.items(']', function* () {
    return (yield* one(input, out)) && !out.full;
  });
  return out.calls > before;
}

/** A JSON call, or a list of them. */
function* readJson(input: AnswerInput, out: AnswerOut): Steps<boolean> {
  const call: ReadCall = () => readJsonCall(input, out, false);
  return (yield* input.peek(1)) === '[' ? yield* readList(input, out, call) : yield* call(input, out);
}

/**
 * Calls between marks.
 * @param close may be left out
 * @param read false for what is no call, which is text
 * @param bare what a call may begin with where `open` is left out
 */
const readMarkedCalls = (open: string, close: string | undefined, read: ReadCall, bare?: string) =>
  function* (input: AnswerInput, out: AnswerOut): Steps {
    const opens = bare === undefined ? [open] : [open, bare];
    for (;;) {
      const mark = yield* input.until(opens, out.text);
      if (mark === undefined) return;
      input.keep();
      yield* input.blanks();
      const isCall = yield* read(input, out, mark === bare);
      const text = input.kept();
      if (!isCall) out.text(mark + text);
      if (out.full) return;
      if (!isCall || close === undefined) continue;
      yield* input.blanks();
      if (yield* input.literal(close)) yield* input.blanks();
    }
  };

/** `<tool_call>{...}</tool_call>`, of one or a list, or as XML within (Qwen3-Coder). */
const readTaggedCalls = (open: string, close?: string, bare?: string) =>
  readMarkedCalls(
    open,
    close,
    function* (input, out, isBare) {
      const isXml = isBare || (yield* input.peek(1)) === '<';
      return isXml ? yield* readXmlCall(input, out, isBare) : yield* readJson(input, out);
    },
    bare,
  );

/** LFM2's: `<|tool_call_start|>[name(argument="...", ...), ...]<|tool_call_end|>`. */
const readLfmCalls = readMarkedCalls(LFM.open, LFM.close, function* (input, out) {
  return (yield* input.peek(1)) === '[' && (yield* readList(input, out, readPythonCall));
});

/** FunctionGemma's and Gemma 4's: `<|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>`. */
const readGemmaCalls = ({ open, close, quote }: typeof GEMMA | typeof FUNCTION_GEMMA) =>
  readMarkedCalls(open, close, readGemmaCall(quote));

/** Mistral's: `[TOOL_CALLS] [{...}]`, or `[TOOL_CALLS]name[ARGS]{...}` for each. */
function* readMistralCalls(input: AnswerInput, out: AnswerOut): Steps {
  while ((yield* input.until(['[TOOL_CALLS]'], out.text)) !== undefined) {
    yield* input.blanks();
    const next = yield* input.peek(1);
    if ('[{'.includes(next)) yield* readJson(input, out);
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

/** DeepSeek V2.5, V3 and R1 write `function`, the separator, the name and arguments in a code fence; V3.1 name, separator, arguments. */
function* readDeepseekCalls(input: AnswerInput, out: AnswerOut): Steps {
  const { open, begin, separator, end, close } = DEEPSEEK;
  while ((yield* input.until([open], out.text)) !== undefined) {
    for (;;) {
      yield* input.blanks();
      if (!(yield* input.literal(begin))) break;
      let head = '';
      if ((yield* input.until([separator], (text) => (head += text))) === undefined) return;
      if ((yield* input.peek(1)) !== '{') {
        head = yield* input.word(/[^\n`]/);
        yield* input.blanks();
        if (yield* input.literal('```')) {
          yield* input.literal('json');
          yield* input.blanks();
        }
      }
      const name = head.trim();
      if (name !== '' && (yield* input.peek(1)) === '{') {
        out.call(name);
        yield* readArguments(input, out.arguments);
        if (out.full) return;
      }
      if ((yield* input.until([end, close], () => {})) !== end) break;
    }
    if (yield* input.literal(close)) yield* input.blanks();
  }
}

const PYTHON_TAG = '<|python_tag|>';
const FENCE = '```';

/**
 * Llama 3's, which nothing marks: an answer that begins with {"name": ..., "parameters": {...}}, of a tool that there is, is a call.
 * More may follow behind `;` or a blank; a list, a code fence or `<|python_tag|>` may be around them. With the tag, or as a list, also
 * name(argument="...").
 */
function* readBareCalls(input: AnswerInput, out: AnswerOut): Steps {
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
          : tagged && count === 0 && (yield* readPythonCall(input, out, true));
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
    (yield* input.peek(1)) === '{' ? yield* readJsonCall(input, out, true) : yield* readPythonCall(input, out, true);
  const rest = input.kept();
  if (!read) out.text(rest);
  if (!out.full) yield* input.rest(out.text);
}

function* readBareList(input: AnswerInput, out: AnswerOut): Steps<boolean> {
  const isJson = /^\[[\s{]/.test(yield* input.peek(2));
  return yield* readList(input, out, () => (isJson ? readJsonCall : readPythonCall)(input, out, true));
}

const HARMONY_MARKS = Object.values(HARMONY);

/**
 * gpt-oss's answers, which consist of messages on channels:
 *
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
 *   <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
 *
 * What is said on `final` is the answer, what is for a function a call, all else is thought; roles and channels' names are neither. An
 * answer without marks is one, and so is a message without a channel.
 */
function* readHarmony(input: AnswerInput, out: AnswerOut): Steps {
  let header: string | undefined;
  let take: Take = out.text;
  // The prompt ends with the beginning of a message, which may go on with whom it is for.
  if (out.options.tools && (yield* input.literal(' to='))) header = ' to=';
  for (;;) {
    const into: Take = header === undefined ? take : (text) => (header += text);
    const mark = yield* input.until(HARMONY_MARKS, into, true);
    switch (mark) {
      case undefined:
        return;
      case HARMONY.start:
        header = '';
        out.thinking = false;
        break;
      case HARMONY.channel:
        header = `${header ?? ''}${HARMONY.channel}`;
        out.thinking = false;
        break;
      case HARMONY.constrain:
        if (header !== undefined) header += ' ';
        break;
      case HARMONY.message:
        take = harmonyTake(header ?? '', out);
        header = undefined;
        break;
      default:
        if (out.full) return;
        // Until the next message begins there is nothing to read.
        out.thinking = false;
        take = () => {};
    }
  }
}

function harmonyTake(header: string, out: AnswerOut): Take {
  const [, channel = ''] = header.split(HARMONY.channel);
  const [, name] = /\bto=functions\.([\w.-]+)/.exec(header) ?? [];
  if (name !== undefined && out.options.tools) {
    out.call(name);
    return out.arguments;
  }
  if (/^\s*(final\b|$)/.test(channel) && name === undefined) return out.text;
  out.thinking = true;
  return out.reasoning;
}

/** How answers of each format are read, from behind their thoughts. */
export const READERS: Readonly<Record<CallFormatName, (input: AnswerInput, out: AnswerOut) => Steps>> = {
  harmony: readHarmony,
  deepseek_fenced: readDeepseekCalls,
  deepseek: readDeepseekCalls,
  mistral: readMistralCalls,
  mistral_list: readMistralCalls,
  lfm2: readLfmCalls,
  gemma: readGemmaCalls(GEMMA),
  functiongemma: readGemmaCalls(FUNCTION_GEMMA),
  qwen_xml: readTaggedCalls('<tool_call>', '</tool_call>', CALL_SHAPES.qwen_xml.bare),
  hermes: readTaggedCalls('<tool_call>', '</tool_call>'),
  phi: readTaggedCalls('<|tool_call|>', '<|/tool_call|>'),
  granite: readTaggedCalls('<|tool_call|>'),
  json: readBareCalls,
};
