import { chatToolCalls, withDelta } from '../../chat_formats/tools.js';
import type { Completion, CompletionEvent, TokenLogprobs, ToolCall, ToolCallDelta } from '../../index.js';
import {
  type AnswerTimes,
  type AnswerWriter,
  chancesOf,
  progressOf,
  timingsOf,
  type WholeAnswer,
} from './answer_request.js';
import type { CompletionCall } from './fields.js';
import { plainInput } from './part_writer.js';

/** How one of the two APIs of choices writes answers. */
interface AnswerShape {
  readonly idPrefix: string;
  readonly object: string;
  readonly chunkObject: string;
  /** What a stream says first of each answer. */
  readonly opening?: object;
  /** `choices` entry of a whole answer, without its index and finish_reason. */
  readonly whole: (answer: WholeAnswer) => object;
  /** ... of a piece; undefined logprobs: not asked for. */
  readonly piece: (text: string, logprobs: CompletionEvent['logprobs'] | undefined) => object;
  /** ... of a piece of what is thought; left out where only answers are told. */
  readonly thought?: (reasoning: string) => object;
  /** ... of what is new of calls; left out where none are told. */
  readonly calls?: (calls: readonly ToolCallDelta[]) => object;
  /** ... of the end of a stream. */
  readonly closing: object;
}

type ApiFinish = 'stop' | 'length' | 'tool_calls';

const finishReason = (finish: WholeAnswer['finish'], called: boolean): ApiFinish =>
  finish === 'max_tokens' || finish === 'context_full' ? 'length' : called ? 'tool_calls' : 'stop';

/** Writes answers as choices: chat's, or those of texts. */
export class ChoiceWriter implements AnswerWriter {
  readonly mark = '[DONE]';
  /** Of each answer, so far. */
  readonly #calls = new Map<number, readonly ToolCall[]>();

  constructor(
    private readonly call: CompletionCall,
    private readonly shape: AnswerShape,
    private readonly head: {
      readonly id: string;
      readonly created: number;
      readonly model: string;
      readonly system_fingerprint: string;
    },
    private readonly textOf: (ids: readonly number[]) => string,
  ) {}

  whole(answers: readonly WholeAnswer[], completion: Completion, times: AnswerTimes): object {
    const { head, shape } = this;
    return {
      ...head,
      object: shape.object,
      choices: answers.map((answer, index) => ({
        index,
        ...shape.whole({ ...answer, toolCalls: answer.toolCalls.map((call) => this.#asTold(call)) }),
        finish_reason: finishReason(answer.finish, answer.toolCalls.length > 0),
      })),
      usage: usageOf(completion),
      ...this.#timings(completion, times),
      ...(this.call.verbose && { __verbose: { prompt: this.textOf(completion.prompts[0]!) } }),
    };
  }

  #timings(completion: Completion, times: AnswerTimes): object {
    return this.call.timings ? { timings: timingsOf(completion, times) } : {};
  }

  opening(): object[] {
    const { prompts, options } = this.call;
    const { opening } = this.shape;
    if (!opening) return [];
    return Array.from({ length: prompts.length * (options.n ?? 1) }, (_, index) => this.#chunk(index, opening, null));
  }

  chunks({ index, text, reasoning, toolCalls, logprobs, progress, finish }: CompletionEvent): object[] {
    if (progress) return [{ ...this.#chunk(index, this.shape.closing, null), ...progressOf(progress) }];
    const wanted = this.call.options.logprobs === undefined ? undefined : logprobs;
    const chunks: object[] = [];
    const thought = reasoning === undefined ? undefined : this.shape.thought?.(reasoning);
    if (thought) chunks.push(this.#chunk(index, thought, null));
    if (text !== '' || logprobs.length > 0) chunks.push(this.#chunk(index, this.shape.piece(text, wanted), null));
    const all = withDelta(this.#calls.get(index) ?? [], toolCalls ?? []);
    this.#calls.set(index, all);
    // A plain text is within an object until that is whole.
    const isText = (at: number): boolean => this.call.textTools?.includes(all[at]!.function.name) ?? false;
    const others = toolCalls?.filter((delta) => !isText(delta.index)) ?? [];
    const calls = others.length > 0 && this.shape.calls?.(others);
    if (calls) chunks.push(this.#chunk(index, calls, null));
    if (!finish) return chunks;
    for (const [at, call] of all.entries()) {
      const told = { index: at, ...this.#asTold(call) };
      if (isText(at)) chunks.push(this.#chunk(index, { delta: { tool_calls: [told] }, logprobs: null }, null));
    }
    chunks.push(this.#chunk(index, this.shape.closing, finishReason(finish, all.length > 0)));
    return chunks;
  }

  /** A call as its tool is called: with a plain text, or with arguments. */
  #asTold(call: ToolCall): ToolCall {
    const { name, arguments: args } = call.function;
    if (!this.call.textTools?.includes(name)) return call;
    return { id: call.id, type: 'custom', custom: { name, input: plainInput(args) } } as unknown as ToolCall;
  }

  closing(completion: Completion, times: AnswerTimes): object[] {
    if (!this.call.includeUsage) return [];
    const usage = { usage: usageOf(completion), ...this.#timings(completion, times) };
    return [{ ...this.head, object: this.shape.chunkObject, choices: [], ...usage }];
  }

  #chunk(index: number, choice: object, finish_reason: ApiFinish | null): object {
    return {
      ...this.head,
      object: this.shape.chunkObject,
      choices: [{ index, ...choice, finish_reason }],
      ...(this.call.includeUsage && { usage: null }),
    };
  }
}

const usageOf = ({ promptTokens, cachedTokens, completionTokens, reasoningTokens }: Completion): object => ({
  prompt_tokens: promptTokens,
  prompt_tokens_details: { cached_tokens: cachedTokens },
  completion_tokens: completionTokens,
  completion_tokens_details: { reasoning_tokens: reasoningTokens },
  total_tokens: promptTokens + completionTokens,
});

export const chatShape: AnswerShape = {
  idPrefix: 'chatcmpl-',
  object: 'chat.completion',
  chunkObject: 'chat.completion.chunk',
  opening: { delta: { role: 'assistant', content: null, refusal: null }, logprobs: null },
  whole: ({ text, reasoning, toolCalls, logprobs }) => ({
    message: {
      role: 'assistant',
      content: text === '' && toolCalls.length > 0 ? null : text,
      // As DeepSeek's API and vLLM name it.
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(toolCalls.length > 0 && { tool_calls: toolCalls }),
      refusal: null,
    },
    logprobs: chatLogprobs(logprobs),
  }),
  piece: (text, logprobs) => ({ delta: { content: text }, logprobs: chatLogprobs(logprobs) }),
  thought: (reasoning) => ({ delta: { reasoning_content: reasoning }, logprobs: null }),
  calls: (calls) => ({ delta: { tool_calls: chatToolCalls(calls) }, logprobs: null }),
  closing: { delta: {}, logprobs: null },
};

const chatLogprobs = (logprobs: CompletionEvent['logprobs'] | undefined): object | null =>
  logprobs ? { content: chancesOf(logprobs), refusal: null } : null;

export const textShape: AnswerShape = {
  idPrefix: 'cmpl-',
  object: 'text_completion',
  chunkObject: 'text_completion',
  whole: ({ text, logprobs }) => ({ text, logprobs: textLogprobs(logprobs) }),
  piece: (text, logprobs) => ({ text, logprobs: textLogprobs(logprobs) }),
  closing: { text: '', logprobs: null },
};

/** The older form: a list each. Offsets count from the beginning of the answer. */
function textLogprobs(logprobs: CompletionEvent['logprobs'] | undefined): object | null {
  if (!logprobs) return null;
  return {
    tokens: logprobs.map(({ text }) => text),
    token_logprobs: logprobs.map(({ logprob }) => (Number.isNaN(logprob) ? null : logprob)),
    top_logprobs: logprobs.map(topOf),
    text_offset: logprobs.map(({ offset }) => offset),
  };
}

/** By text; of tokens that look alike the likeliest. The token itself is always there. */
function topOf(token: TokenLogprobs): Record<string, number> | null {
  // The first token of an echoed prompt, which nothing predicts.
  if (Number.isNaN(token.logprob)) return null;
  const byText = new Map<string, number>();
  for (const { text, logprob } of [...token.top, token]) if (!byText.has(text)) byText.set(text, logprob);
  return Object.fromEntries(byText);
}
