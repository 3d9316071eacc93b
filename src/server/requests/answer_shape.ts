import type { Completion, CompletionEvent, ToolCall, ToolCallDelta } from '../../index.js';
import type { ApiError } from '../api_error.js';

/** One answer, whole. */
export interface WholeAnswer {
  readonly text: string;
  /** What the model thought before; may be empty. */
  readonly reasoning: string;
  /** Of tools; may be empty. */
  readonly toolCalls: readonly ToolCall[];
  readonly logprobs: CompletionEvent['logprobs'] | undefined;
  readonly finish: NonNullable<CompletionEvent['finish']>;
  /** The stop text that ended it, if one did. */
  readonly stop: string | undefined;
}

/** What one of the APIs says of the answers to a request. */
export interface AnswerWriter {
  /** Events of its streams have names, which are their types. */
  readonly isNamed?: boolean;
  /** What ends a stream of whole answers, behind its events. */
  readonly mark?: string;
  /** All of it at once. */
  whole(answers: readonly WholeAnswer[], completion: Completion): object;
  /** A stream's events: before anything is there, of what comes, at the end, and instead of that where it breaks. */
  opening(completion: Completion): readonly object[];
  chunks(event: CompletionEvent): readonly object[];
  closing(completion: Completion): readonly object[];
  broken(error: ApiError): readonly object[];
}

/** How one of the two APIs of choices writes answers. */
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
  /** ... of what is new of calls; left out where none are told. */
  readonly calls?: (calls: readonly ToolCallDelta[]) => object;
  /** ... of the end of a stream. */
  readonly closing: object;
}

export type ApiFinish = 'stop' | 'length' | 'tool_calls';

export const finishReason = (finish: WholeAnswer['finish'], called: boolean): ApiFinish =>
  finish === 'max_tokens' || finish === 'context_full' ? 'length' : called ? 'tool_calls' : 'stop';
