/**
 * Room: how models write thoughts and tool calls. What tells each format, and how a call is written, says call_shapes.ts; here is how
 * answers are read as they come (answer_reader.ts). What a template is told is in template_messages.ts. Read answer_input.ts next.
 */

import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { READERS } from './call_readers.js';
import { CALL_SHAPES, type CallFormatName, type CallShape, HARMONY } from './call_shapes.js';
import { argumentsText, type ToolCall } from './tools.js';
import { gemmaArguments, pythonArguments, xmlArguments } from './written_calls.js';

/** Where a model's thoughts are, before its answer. */
export interface Thinking {
  readonly open: string;
  readonly close: string;
}

const WRITERS = { json: argumentsText, python: pythonArguments, xml: xmlArguments } as const;

const THINK: Thinking = { open: '<think>', close: '</think>' };

/** How a model writes its answers. */
export class ChatFormat {
  readonly name: CallFormatName;
  readonly #shape: CallShape;
  readonly thinking: Thinking | undefined;
  /** Texts that special tokens may stand for, and that are read as such. */
  readonly marks: readonly string[];

  /** @param hasToken whether the vocabulary has a token of that text */
  constructor(template: string, hasToken: (text: string) => boolean) {
    const names = Object.keys(CALL_SHAPES) as CallFormatName[];
    this.name = names.find((name) => CALL_SHAPES[name].fits(template, hasToken)) ?? 'json';
    this.#shape = CALL_SHAPES[this.name];
    this.thinking = thinkingOf(template, hasToken);
    const around = this.thinking ? [this.thinking.open.replace(/(>|\]).*$/, '$1'), this.thinking.close] : [];
    this.marks = [...new Set([...around, ...this.#shape.marks])];
  }

  /** Its templates take ids of 9 letters and digits. */
  get shortIds(): boolean {
    return this.name === 'mistral' || this.name === 'mistral_list';
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
    yield* tools || this.name === 'harmony' ? READERS[this.name](input, out) : input.rest(out.text);
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
