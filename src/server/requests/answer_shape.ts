import type { CompletionEvent } from '../../index.js';

/** One answer, whole. */
export interface WholeAnswer {
  readonly text: string;
  /** What the model thought before; may be empty. */
  readonly reasoning: string;
  readonly logprobs: CompletionEvent['logprobs'] | undefined;
  readonly finish: NonNullable<CompletionEvent['finish']>;
}

/** How one of the two APIs writes answers. */
export interface AnswerShape {
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
  /** ... of the end of a stream. */
  readonly closing: object;
}

export const finishReason = (finish: WholeAnswer['finish']): 'stop' | 'length' =>
  finish === 'max_tokens' || finish === 'context_full' ? 'length' : 'stop';
