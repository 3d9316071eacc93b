import type { Completion, CompletionEvent, TokenLogprobs, TokenChance, ToolCall } from '../../index.js';
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

/** Tokens with their chances, as OpenAI's newer APIs tell them. */
export const chancesOf = (logprobs: readonly TokenLogprobs[]): object[] =>
  logprobs.map((token) => ({ ...chance(token), top_logprobs: token.top.map(chance) }));

const chance = ({ text, logprob, bytes }: TokenChance): object => ({ token: text, logprob, bytes });
