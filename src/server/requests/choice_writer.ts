import type { Completion, CompletionEvent } from '../../index.js';
import type { ApiError } from '../api_error.js';
import { type AnswerShape, type AnswerWriter, type ApiFinish, finishReason, type WholeAnswer } from './answer_shape.js';
import type { CompletionCall } from './completion_call.js';

/** Writes answers as choices: chat's, or those of texts. */
export class ChoiceWriter implements AnswerWriter {
  readonly mark = '[DONE]';
  /** Answers that have called tools. */
  readonly #called = new Set<number>();

  constructor(
    private readonly call: CompletionCall,
    private readonly shape: AnswerShape,
    private readonly head: {
      readonly id: string;
      readonly created: number;
      readonly model: string;
      readonly system_fingerprint: string;
    },
  ) {}

  whole(answers: readonly WholeAnswer[], completion: Completion): object {
    const { head, shape } = this;
    return {
      ...head,
      object: shape.object,
      choices: answers.map((answer, index) => ({
        index,
        ...shape.whole(answer),
        finish_reason: finishReason(answer.finish, answer.toolCalls.length > 0),
      })),
      usage: usageOf(completion),
    };
  }

  opening(): object[] {
    const { prompts, options } = this.call;
    const { opening } = this.shape;
    if (!opening) return [];
    return Array.from({ length: prompts.length * (options.n ?? 1) }, (_, index) => this.#chunk(index, opening, null));
  }

  chunks({ index, text, reasoning, toolCalls, logprobs, finish }: CompletionEvent): object[] {
    const wanted = this.call.options.logprobs === undefined ? undefined : logprobs;
    const chunks: object[] = [];
    const thought = reasoning === undefined ? undefined : this.shape.thought?.(reasoning);
    if (thought) chunks.push(this.#chunk(index, thought, null));
    if (text !== '' || logprobs.length > 0) chunks.push(this.#chunk(index, this.shape.piece(text, wanted), null));
    const calls = toolCalls && this.shape.calls?.(toolCalls);
    if (calls) {
      this.#called.add(index);
      chunks.push(this.#chunk(index, calls, null));
    }
    if (finish) chunks.push(this.#chunk(index, this.shape.closing, finishReason(finish, this.#called.has(index))));
    return chunks;
  }

  closing(completion: Completion): object[] {
    if (!this.call.includeUsage) return [];
    return [{ ...this.head, object: this.shape.chunkObject, choices: [], usage: usageOf(completion) }];
  }

  broken({ body }: ApiError): object[] {
    return [body];
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
