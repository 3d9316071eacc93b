/**
 * Room: how models write thoughts and tool calls. A row for each format: what tells it, and how its answers are read as they come
 * (answer_reader.ts); how a call is written says call_shapes.ts. What a template is told is in template_messages.ts. Read answer_input.ts next.
 */

import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import {
  type CallFormatName,
  type CallShape,
  DEEPSEEK,
  FUNCTION_GEMMA,
  GEMMA,
  HARMONY,
  LFM,
  shapeOf,
} from './call_shapes.js';
import { readDeepseekCalls } from './deepseek_calls.js';
import { gemmaArguments, readGemmaCalls } from './gemma_calls.js';
import { readHarmony } from './harmony.js';
import { readBareCalls, readLfmCalls, readMistralCalls, readTaggedCalls } from './json_calls.js';
import { pythonArguments } from './python_calls.js';
import { argumentsText, type ToolCall } from './tools.js';
import { xmlArguments } from './xml_calls.js';

/** Where a model's thoughts are, before its answer. */
export interface Thinking {
  readonly open: string;
  readonly close: string;
}

/** How a model reads and writes tool calls: the shape of its name (call_shapes.ts). */
interface Row {
  readonly name: CallFormatName;
  /** Whether it is the model's, by its template and its vocabulary. */
  fits(template: string, hasToken: (text: string) => boolean): boolean;
  /** Its templates take ids of 9 letters and digits. */
  readonly shortIds?: boolean;
  /** Reads an answer, from behind its thoughts. */
  read(input: AnswerInput, out: AnswerOut): Steps;
}

/** The first that fits is a model's. */
const ROWS: readonly Row[] = [
  {
    name: 'harmony',
    fits: (_, hasToken) => [HARMONY.start, HARMONY.channel, HARMONY.message, HARMONY.end].every(hasToken),
    read: readHarmony,
  },
  {
    name: 'deepseek_fenced',
    fits: (template) => template.includes(DEEPSEEK.open) && template.includes('```json'),
    read: readDeepseekCalls,
  },
  { name: 'deepseek', fits: (template) => template.includes(DEEPSEEK.open), read: readDeepseekCalls },
  {
    name: 'mistral',
    fits: (template) => template.includes('[TOOL_CALLS]') && template.includes('[ARGS]'),
    shortIds: true,
    read: readMistralCalls,
  },
  {
    name: 'mistral_list',
    fits: (template) => template.includes('[TOOL_CALLS]'),
    shortIds: true,
    read: readMistralCalls,
  },
  {
    name: 'lfm2',
    fits: (template, hasToken) => /<\|tool_(call|list)_start\|>/.test(template) || hasToken(LFM.open),
    read: readLfmCalls,
  },
  {
    name: 'gemma',
    fits: (template) => template.includes(GEMMA.open) && template.includes(GEMMA.close),
    read: readGemmaCalls(GEMMA),
  },
  {
    name: 'functiongemma',
    fits: (template) => template.includes(FUNCTION_GEMMA.open),
    read: readGemmaCalls(FUNCTION_GEMMA),
  },
  {
    name: 'qwen_xml',
    fits: (template) => template.includes('<tool_call>') && template.includes('<function='),
    read: readTaggedCalls('<tool_call>', '</tool_call>'),
  },
  {
    name: 'hermes',
    fits: (template, hasToken) =>
      template.includes('<tool_call>') || (hasToken('<tool_call>') && hasToken('</tool_call>')),
    read: readTaggedCalls('<tool_call>', '</tool_call>'),
  },
  {
    name: 'phi',
    fits: (template, hasToken) =>
      template.includes('<|/tool_call|>') || template.includes('<|/tool|>') || hasToken('<|/tool_call|>'),
    read: readTaggedCalls('<|tool_call|>', '<|/tool_call|>'),
  },
  {
    name: 'granite',
    fits: (template) => template.includes('<|tool_call|>'),
    read: readTaggedCalls('<|tool_call|>'),
  },
  { name: 'json', fits: () => true, read: readBareCalls },
];

const WRITERS = { json: argumentsText, python: pythonArguments, xml: xmlArguments } as const;

const THINK: Thinking = { open: '<think>', close: '</think>' };

/** How a model writes its answers. */
export class ChatFormat {
  readonly #row: Row;
  readonly #shape: CallShape;
  readonly thinking: Thinking | undefined;
  /** Texts that special tokens may stand for, and that are read as such. */
  readonly marks: readonly string[];

  /** @param hasToken whether the vocabulary has a token of that text */
  constructor(template: string, hasToken: (text: string) => boolean) {
    this.#row = ROWS.find((row) => row.fits(template, hasToken))!;
    this.#shape = shapeOf(this.#row.name);
    this.thinking = thinkingOf(template, hasToken);
    const around = this.thinking ? [this.thinking.open.replace(/(>|\]).*$/, '$1'), this.thinking.close] : [];
    this.marks = [...new Set([...around, ...this.#shape.marks])];
  }

  get name(): CallFormatName {
    return this.#row.name;
  }

  get shortIds(): boolean {
    return this.#row.shortIds === true;
  }

  /** Answers have thoughts that can be told apart. */
  get thinks(): boolean {
    return this.thinking !== undefined || this.name === 'harmony';
  }

  /** Whether a prompt ends where its answer's thoughts begin. */
  isOpen(prompt: string): boolean {
    return this.thinking !== undefined && prompt.trimEnd().endsWith(this.thinking.open);
  }

  /** Calls as the model writes them: where its template can't. */
  write(calls: readonly ToolCall[]): string {
    const { around: [open, close] = ['', ''], between, arguments: how } = this.#shape;
    const write = typeof how === 'string' ? WRITERS[how] : gemmaArguments(how.quote);
    const written = calls.map((call) => {
      const [before, behind] = this.#shape.call(call.function.name);
      return before + write(call) + behind;
    });
    return open + written.join(between) + close;
  }

  *read(input: AnswerInput, out: AnswerOut): Steps {
    const { thinking, tools } = out.options;
    if (thinking && this.thinking) yield* readThoughts(input, out, this.thinking);
    yield* tools || this.name === 'harmony' ? this.#row.read(input, out) : input.rest(out.text);
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
