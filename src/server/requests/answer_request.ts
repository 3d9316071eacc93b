import { randomUUID } from 'node:crypto';
import { type Completion, type CompletionEvent, type ServingModel, SplitkvError } from '../../index.js';
import { ApiError, badRequest, toApiError } from '../api_error.js';
import { type AnswerShape, finishReason, type WholeAnswer } from './answer_shape.js';
import type { CompletionCall } from './completion_call.js';
import { EventStream, type EventStreamOptions } from '../http/event_stream.js';
import { type Exchange, outcomeOf } from '../http/exchange.js';

export interface AnswerOptions extends EventStreamOptions {
  readonly modelName: string;
  readonly fingerprint: string;
  /** Hears of errors that clients aren't told. */
  readonly onError: (error: unknown) => void;
}

/** Answers a checked request, whole or as a stream. @throws what refuses it, before anything was sent; and `stopped` */
export async function answerRequest(
  exchange: Exchange,
  model: ServingModel,
  call: CompletionCall,
  shape: AnswerShape,
  options: AnswerOptions,
): Promise<void> {
  const completion = await ask(exchange, model, call);
  const head = { id: `${shape.idPrefix}${randomUUID()}`, created: Math.floor(Date.now() / 1000) };
  const writer = new AnswerWriter(call, shape, {
    ...head,
    model: options.modelName,
    system_fingerprint: options.fingerprint,
  });
  if (!call.stream) {
    const answers = await collect(completion, call);
    if (exchange.signal.aborted || answers.some(({ finish }) => finish === 'aborted')) throw stopped();
    exchange.sendJson(200, writer.whole(answers, completion));
    return;
  }
  const stream = new EventStream(exchange, options);
  try {
    for (const event of writer.opening()) stream.send(event);
    for await (const event of completion) {
      if (exchange.signal.aborted || event.finish === 'aborted') throw stopped();
      for (const chunk of writer.chunks(event)) stream.send(chunk);
    }
    if (exchange.signal.aborted) throw stopped();
    if (call.includeUsage) stream.send(writer.usage(completion));
    stream.end('completed');
  } catch (error) {
    // The status is out: the stream says what happened, as OpenAI's does.
    const told = toApiError(error);
    if (told.details.cause !== undefined) options.onError(error);
    stream.send(told.body);
    stream.end(outcomeOf(told));
  }
}

/** Only told to those who are still there: at a shutdown. */
export const stopped = (): ApiError =>
  new ApiError(503, 'the server shut down before the answer was complete', { code: 'shutting_down' });

async function ask(
  exchange: Exchange,
  model: ServingModel,
  { prompts, promptField, options }: CompletionCall,
): Promise<Completion> {
  try {
    await model.prepare(options);
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'usage')) throw toApiError(error);
    throw badRequest(error.message, options.responseFormat && 'response_format');
  }
  try {
    return model.completeAll(prompts, { ...options, signal: exchange.signal });
  } catch (error) {
    throw exchange.signal.aborted ? stopped() : toApiError(error, promptField);
  }
}

async function collect(
  completion: Completion,
  { prompts, options: { n = 1, logprobs } }: CompletionCall,
): Promise<WholeAnswer[]> {
  const answers = Array.from({ length: prompts.length * n }, () => ({
    text: '',
    reasoning: '',
    logprobs: logprobs === undefined ? undefined : ([] as CompletionEvent['logprobs'][number][]),
    finish: 'aborted' as WholeAnswer['finish'],
  }));
  for await (const { index, text, reasoning = '', logprobs: more, finish } of completion) {
    const answer = answers[index]!;
    answer.text += text;
    answer.reasoning += reasoning;
    answer.logprobs?.push(...more);
    if (finish) answer.finish = finish;
  }
  return answers;
}

/** Writes answers in the form of one of the APIs. */
class AnswerWriter {
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
        finish_reason: finishReason(answer.finish),
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

  chunks({ index, text, reasoning, logprobs, finish }: CompletionEvent): object[] {
    const wanted = this.call.options.logprobs === undefined ? undefined : logprobs;
    const chunks: object[] = [];
    const thought = reasoning === undefined ? undefined : this.shape.thought?.(reasoning);
    if (thought) chunks.push(this.#chunk(index, thought, null));
    if (text !== '' || logprobs.length > 0) chunks.push(this.#chunk(index, this.shape.piece(text, wanted), null));
    if (finish) chunks.push(this.#chunk(index, this.shape.closing, finishReason(finish)));
    return chunks;
  }

  usage(completion: Completion): object {
    return { ...this.head, object: this.shape.chunkObject, choices: [], usage: usageOf(completion) };
  }

  #chunk(index: number, choice: object, finish_reason: 'stop' | 'length' | null): object {
    return {
      ...this.head,
      object: this.shape.chunkObject,
      choices: [{ index, ...choice, finish_reason }],
      ...(this.call.includeUsage && { usage: null }),
    };
  }
}

const usageOf = ({ promptTokens, cachedTokens, completionTokens }: Completion): object => ({
  prompt_tokens: promptTokens,
  prompt_tokens_details: { cached_tokens: cachedTokens },
  completion_tokens: completionTokens,
  total_tokens: promptTokens + completionTokens,
});
