import {
  type Completion,
  type CompletionEvent,
  type FormWait,
  type Prompt,
  type ServingModel,
  SplitkvError,
  type TokenChance,
  type TokenizeOptions,
  type TokenLogprobs,
  type ToolCall,
} from '../../index.js';
import { hasMedia } from '../../engine/serving/prompt_tokens.js';
import { ApiError, badRequest, toApiError } from '../api_error.js';
import { withDelta } from '../../chat_formats/tools.js';
import type { CompletionCall } from './fields.js';
import { EventStream, type Exchange, outcomeOf } from '../http/exchange.js';

export interface WholeAnswer {
  readonly text: string;
  /** What the model thought before; may be empty. */
  readonly reasoning: string;
  /** Of tools; may be empty. */
  readonly toolCalls: readonly ToolCall[];
  readonly tokens?: readonly number[];
  readonly logprobs: CompletionEvent['logprobs'] | undefined;
  readonly finish: NonNullable<CompletionEvent['finish']>;
  /** The stop text that ended it, if one did. */
  readonly stop: string | undefined;
}

/** When things happened, in milliseconds of `performance.now`: the request came, the model was asked, its first token and its last came. */
export interface AnswerTimes {
  readonly began: number;
  readonly asked: number;
  readonly first: number;
  readonly end: number;
}

/** As llama.cpp tells them: tokens computed, and how fast. */
export function timingsOf(
  { promptTokens, cachedTokens, completionTokens }: Completion,
  { asked, first, end }: AnswerTimes,
): object {
  const speed = (what: 'prompt' | 'predicted', n: number, ms: number): object => ({
    [`${what}_n`]: n,
    [`${what}_ms`]: ms,
    [`${what}_per_token_ms`]: n === 0 ? 0 : ms / n,
    [`${what}_per_second`]: ms === 0 ? 0 : (n * 1000) / ms,
  });
  return {
    cache_n: cachedTokens,
    ...speed('prompt', promptTokens - cachedTokens, first - asked),
    ...speed('predicted', completionTokens, end - first),
  };
}

/** As llama.cpp tells how much of a prompt is there. */
export const progressOf = ({ total, cached, there, ms }: NonNullable<CompletionEvent['progress']>): object => ({
  prompt_progress: { total, cache: cached, processed: there, time_ms: Math.round(ms) },
});

/** What one of the APIs says of the answers to a request. */
export interface AnswerWriter {
  /** What ends a stream of whole answers, behind its events. */
  readonly mark?: string;
  /** Streams are lines of JSON, not events. */
  readonly isLines?: boolean;
  whole(answers: readonly WholeAnswer[], completion: Completion, times: AnswerTimes): object;
  /** A stream's events: before anything is there, of what comes, at the end, and instead of that where it breaks. */
  opening?(completion: Completion): readonly object[];
  chunks(event: CompletionEvent): readonly object[];
  closing(completion: Completion, times: AnswerTimes): readonly object[];
  /** Default: what a client is told that has no stream. */
  broken?(error: ApiError): readonly object[];
}

/** Tokens with their chances, as OpenAI's newer APIs tell them. */
export const chancesOf = (logprobs: readonly TokenLogprobs[]): object[] =>
  logprobs.map((token) => ({ ...chance(token), top_logprobs: token.top.map(chance) }));

const chance = ({ text, logprob, bytes }: TokenChance): object => ({ token: text, logprob, bytes });

/**
 * Answers a client's checked request, whole or as a stream.
 * @param wait how forms of answers wait until they are ready
 * @param onError hears of errors that clients aren't told
 * @throws what refuses it, before anything was sent; and `stopped`
 */
export async function answerRequest(
  exchange: Exchange,
  model: ServingModel,
  call: CompletionCall,
  writer: AnswerWriter,
  wait: FormWait,
  onError: (error: unknown) => void,
): Promise<void> {
  const completion = await ask(exchange, model, call, wait);
  const asked = performance.now();
  let first: number | undefined;
  const times = (): AnswerTimes => {
    const end = performance.now();
    return { began: exchange.started, asked, first: first ?? end, end };
  };
  if (!call.stream) {
    const answers = await collect(completion, call, () => (first ??= performance.now()));
    if (exchange.signal.aborted || answers.some(({ finish }) => finish === 'aborted')) throw stopped();
    exchange.sendJson(200, writer.whole(likeliest(answers, call), completion, times()));
    return;
  }
  const stream = new EventStream(exchange, writer.isLines);
  const send = (all: readonly object[]): void => {
    for (const event of all) stream.send(event);
  };
  try {
    send(writer.opening?.(completion) ?? []);
    for await (const event of completion) {
      if (!event.progress) first ??= performance.now();
      if (exchange.signal.aborted || event.finish === 'aborted') throw stopped();
      send(writer.chunks(event));
    }
    if (exchange.signal.aborted) throw stopped();
    send(writer.closing(completion, times()));
    stream.end('completed', writer.mark);
  } catch (error) {
    // The status is out: the stream says what happened, as OpenAI's does.
    const told = toApiError(error);
    if (told.details.cause !== undefined) onError(error);
    send(writer.broken?.(told) ?? [told.body]);
    stream.end(outcomeOf(told));
  }
}

/** Only told to those who are still there: at a shutdown. */
export const stopped = (): ApiError =>
  new ApiError(503, 'the server shut down before the answer was complete', { code: 'shutting_down' });

export type MediaCall = Pick<CompletionCall, 'prompts' | 'promptField'> & { readonly options: TokenizeOptions };

/** Prompts as ids where they have pictures or recordings, others as they are. @throws ApiError */
export async function withMediaRead(
  { signal }: Exchange,
  model: ServingModel,
  { prompts, promptField, options }: MediaCall,
): Promise<readonly Prompt[]> {
  if (!prompts.some(hasMedia)) return prompts;
  try {
    return await Promise.all(prompts.map((prompt) => model.readPrompt(prompt, options)));
  } catch (error) {
    if (signal.aborted) throw stopped();
    // A picture or recording that can't be read is the client's.
    const isTheirs = error instanceof SplitkvError && (error.code === 'format' || error.code === 'limit');
    throw isTheirs ? badRequest(error.message, promptField) : toApiError(error, promptField);
  }
}

async function ask(exchange: Exchange, model: ServingModel, call: CompletionCall, wait: FormWait): Promise<Completion> {
  const { signal, client } = exchange;
  const { promptField, options, formField } = call;
  const prompts = await withMediaRead(exchange, model, call);
  try {
    await model.prepare(options, prompts, wait);
  } catch (error) {
    if (signal.aborted) throw stopped();
    if (!(error instanceof SplitkvError && error.code === 'usage')) throw toApiError(error);
    const field = /^tool(s|_choice)\b/.exec(error.message)?.[0];
    throw badRequest(error.message, field ?? formField);
  }
  try {
    return model.completeAll(prompts, { ...options, client, signal });
  } catch (error) {
    throw signal.aborted ? stopped() : toApiError(error, promptField);
  }
}

/** Of each prompt's answers those whose tokens are likeliest, by their mean. */
function likeliest(
  answers: readonly WholeAnswer[],
  { prompts, options: { n = 1 }, likeliest: wanted }: CompletionCall,
): readonly WholeAnswer[] {
  if (!wanted) return answers;
  const told = prompts.flatMap((_, prompt) =>
    answers
      .slice(prompt * n, (prompt + 1) * n)
      .toSorted((a, b) => meanChance(b) - meanChance(a))
      .slice(0, wanted.n),
  );
  return wanted.logprobs ? told : told.map((answer) => ({ ...answer, logprobs: undefined }));
}

function meanChance({ logprobs = [] }: WholeAnswer): number {
  const known = logprobs.flatMap(({ logprob }) => (Number.isNaN(logprob) ? [] : [logprob]));
  return known.length === 0 ? 0 : known.reduce((sum, each) => sum + each, 0) / known.length;
}

async function collect(
  completion: Completion,
  { prompts, options: { n = 1, logprobs } }: CompletionCall,
  onEvent: () => void,
): Promise<WholeAnswer[]> {
  const answers = Array.from({ length: prompts.length * n }, () => ({
    text: '',
    reasoning: '',
    toolCalls: [] as WholeAnswer['toolCalls'],
    tokens: [] as number[],
    logprobs: logprobs === undefined ? undefined : ([] as CompletionEvent['logprobs'][number][]),
    finish: 'aborted' as WholeAnswer['finish'],
    stop: undefined as WholeAnswer['stop'],
  }));
  for await (const event of completion) {
    const { index, text, reasoning = '', toolCalls = [], logprobs: more, tokens = [], finish, stop } = event;
    onEvent();
    const answer = answers[index]!;
    answer.text += text;
    answer.tokens.push(...tokens);
    answer.reasoning += reasoning;
    answer.toolCalls = withDelta(answer.toolCalls, toolCalls);
    answer.logprobs?.push(...more);
    if (finish) Object.assign(answer, { finish, stop });
  }
  return answers;
}
