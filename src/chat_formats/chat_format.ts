/**
 * Room: how models write thoughts and tool calls. A row for each format: the marks that tell it, how its answers are read as they come
 * (answer_reader.ts), and how a call is written. What a template is told is in template_messages.ts. Read answer_input.ts next.
 */

import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { DEEPSEEK, readDeepseekCalls, writeDeepseekCalls } from './deepseek_calls.js';
import { FUNCTION_GEMMA, GEMMA, readGemmaCalls, writeGemmaCalls } from './gemma_calls.js';
import { HARMONY, readHarmony } from './harmony.js';
import { jsonCall, readBareCalls, readMarkedCalls, readMistralCalls } from './json_calls.js';
import { readLfmCalls, writePythonCalls } from './python_calls.js';
import { type ToolCall } from './tools.js';
import { writeXmlCall } from './xml_calls.js';

/** Where a model's thoughts are, before its answer. */
export interface Thinking {
  readonly open: string;
  readonly close: string;
}

/** How a model writes tool calls. */
export interface CallFormat {
  readonly name: CallFormatName;
  /** Texts that its calls are made of. Special tokens among them are read as text. */
  readonly marks: readonly string[];
  /** Its templates take ids of 9 letters and digits. */
  readonly shortIds?: boolean;
  /** Reads an answer, from behind its thoughts. */
  read(input: AnswerInput, out: AnswerOut): Steps;
  /** Calls as the model writes them: where its template can't. */
  write(calls: readonly ToolCall[]): string;
}

export type CallFormatName =
  | 'harmony'
  | 'deepseek'
  | 'deepseek_fenced'
  | 'mistral'
  | 'mistral_list'
  | 'lfm2'
  | 'gemma'
  | 'functiongemma'
  | 'qwen_xml'
  | 'hermes'
  | 'phi'
  | 'granite'
  | 'json';

interface Row extends CallFormat {
  /** Whether it is the model's, by its template and its vocabulary. */
  fits(template: string, hasToken: (text: string) => boolean): boolean;
}

const joined =
  (write: (call: ToolCall) => string, between = '\n') =>
  (calls: readonly ToolCall[]): string =>
    calls.map(write).join(between);
const listed = (open: string, close: string) => (calls: readonly ToolCall[]) =>
  `${open}[${calls.map(jsonCall('arguments')).join(', ')}]${close}`;

/** The first that fits is a model's. */
const ROWS: readonly Row[] = [
  {
    name: 'harmony',
    fits: (_, hasToken) => [HARMONY.start, HARMONY.channel, HARMONY.message, HARMONY.end].every(hasToken),
    marks: Object.values(HARMONY),
    read: readHarmony,
    write: joined(
      ({ function: { name, arguments: text } }) =>
        `${HARMONY.channel}commentary to=functions.${name} ${HARMONY.constrain}json${HARMONY.message}${text}${HARMONY.call}`,
      '',
    ),
  },
  {
    name: 'deepseek_fenced',
    fits: (template) => template.includes(DEEPSEEK.open) && template.includes('```json'),
    marks: Object.values(DEEPSEEK),
    read: readDeepseekCalls,
    write: writeDeepseekCalls(true),
  },
  {
    name: 'deepseek',
    fits: (template) => template.includes(DEEPSEEK.open),
    marks: Object.values(DEEPSEEK),
    read: readDeepseekCalls,
    write: writeDeepseekCalls(false),
  },
  {
    name: 'mistral',
    fits: (template) => template.includes('[TOOL_CALLS]') && template.includes('[ARGS]'),
    marks: ['[TOOL_CALLS]', '[ARGS]', '[CALL_ID]'],
    shortIds: true,
    read: readMistralCalls,
    write: joined(({ function: { name, arguments: text } }) => `[TOOL_CALLS]${name}[ARGS]${text}`, ''),
  },
  {
    name: 'mistral_list',
    fits: (template) => template.includes('[TOOL_CALLS]'),
    marks: ['[TOOL_CALLS]'],
    shortIds: true,
    read: readMistralCalls,
    write: listed('[TOOL_CALLS]', ''),
  },
  {
    name: 'lfm2',
    fits: (template, hasToken) => /<\|tool_(call|list)_start\|>/.test(template) || hasToken('<|tool_call_start|>'),
    marks: ['<|tool_call_start|>', '<|tool_call_end|>'],
    read: readLfmCalls,
    write: writePythonCalls,
  },
  {
    name: 'gemma',
    fits: (template) => template.includes(GEMMA.open) && template.includes(GEMMA.close),
    marks: Object.values(GEMMA),
    read: readGemmaCalls(GEMMA),
    write: writeGemmaCalls(GEMMA),
  },
  {
    name: 'functiongemma',
    fits: (template) => template.includes(FUNCTION_GEMMA.open),
    marks: Object.values(FUNCTION_GEMMA),
    read: readGemmaCalls(FUNCTION_GEMMA),
    write: writeGemmaCalls(FUNCTION_GEMMA),
  },
  {
    name: 'qwen_xml',
    fits: (template) => template.includes('<tool_call>') && template.includes('<function='),
    marks: ['<tool_call>', '</tool_call>'],
    read: readMarkedCalls('<tool_call>', '</tool_call>'),
    write: joined((call) => `<tool_call>\n${writeXmlCall(call)}\n</tool_call>`),
  },
  {
    name: 'hermes',
    fits: (template, hasToken) =>
      template.includes('<tool_call>') || (hasToken('<tool_call>') && hasToken('</tool_call>')),
    marks: ['<tool_call>', '</tool_call>'],
    read: readMarkedCalls('<tool_call>', '</tool_call>'),
    write: joined((call) => `<tool_call>\n${jsonCall('arguments')(call)}\n</tool_call>`),
  },
  {
    name: 'phi',
    fits: (template, hasToken) =>
      template.includes('<|/tool_call|>') || template.includes('<|/tool|>') || hasToken('<|/tool_call|>'),
    marks: ['<|tool_call|>', '<|/tool_call|>'],
    read: readMarkedCalls('<|tool_call|>', '<|/tool_call|>'),
    write: listed('<|tool_call|>', '<|/tool_call|>'),
  },
  {
    name: 'granite',
    fits: (template) => template.includes('<|tool_call|>'),
    marks: ['<|tool_call|>'],
    read: readMarkedCalls('<|tool_call|>', undefined),
    write: listed('<|tool_call|>', ''),
  },
  {
    name: 'json',
    fits: () => true,
    marks: ['<|python_tag|>'],
    read: readBareCalls,
    write: joined(jsonCall('parameters'), '; '),
  },
];

const THINK: Thinking = { open: '<think>', close: '</think>' };

/** How a model writes its answers. */
export class ChatFormat {
  readonly calls: CallFormat;
  readonly thinking: Thinking | undefined;
  /** Texts that special tokens may stand for, and that are read as such. */
  readonly marks: readonly string[];

  /** @param hasToken whether the vocabulary has a token of that text */
  constructor(template: string, hasToken: (text: string) => boolean) {
    this.calls = ROWS.find((row) => row.fits(template, hasToken))!;
    this.thinking = thinkingOf(template, hasToken);
    const around = this.thinking ? [this.thinking.open.replace(/(>|\]).*$/, '$1'), this.thinking.close] : [];
    this.marks = [...new Set([...around, ...this.calls.marks])];
  }

  get name(): CallFormatName {
    return this.calls.name;
  }

  get shortIds(): boolean {
    return this.calls.shortIds === true;
  }

  /** Answers have thoughts that can be told apart. */
  get thinks(): boolean {
    return this.thinking !== undefined || this.name === 'harmony';
  }

  /** Whether a prompt ends where its answer's thoughts begin. */
  isOpen(prompt: string): boolean {
    return this.thinking !== undefined && prompt.trimEnd().endsWith(this.thinking.open);
  }

  *read(input: AnswerInput, out: AnswerOut): Steps {
    const { thinking, tools } = out.options;
    if (thinking && this.thinking) yield* readThoughts(input, out, this.thinking);
    yield* tools || this.name === 'harmony' ? this.calls.read(input, out) : input.rest(out.text);
  }
}

function thinkingOf(template: string, hasToken: (text: string) => boolean): Thinking | undefined {
  if (hasToken(HARMONY.channel) && hasToken(HARMONY.message)) return undefined;
  if (template.includes('[THINK]')) return { open: '[THINK]', close: '[/THINK]' };
  if (template.includes('<|channel>thought')) return { open: '<|channel>thought', close: '<channel|>' };
  if (template.includes('<seed:think>')) return { open: '<seed:think>', close: '</seed:think>' };
  const isThere = /<\/?think>/.test(template) || (hasToken(THINK.open) && hasToken(THINK.close));
  return isThere ? THINK : undefined;
}

function* readThoughts(input: AnswerInput, out: AnswerOut, { open, close }: Thinking): Steps {
  const before = yield* input.blanks();
  const begins = yield* input.literal(open);
  if (!begins && !out.options.open) return out.text(before);
  out.thinking = true;
  yield* input.blanks();
  yield* input.until([close], out.reasoning);
  out.thinking = false;
  yield* input.blanks();
}
