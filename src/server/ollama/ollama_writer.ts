import type { Completion, CompletionEvent } from '../../index.js';
import type { ApiError } from '../api_error.js';
import { type AnswerTimes, chancesOf } from '../requests/answer_request.js';
import { inputOf, type Part, PartWriter } from '../requests/part_writer.js';

/** Nanoseconds, as Ollama has them. */
const nanoseconds = (ms: number): number => Math.round(Math.max(0, ms) * 1e6);

/** Writes an answer of /api/chat (in a message) or /api/generate (as a text), whole or in lines. */
export class OllamaWriter extends PartWriter {
  readonly isLines = true;

  constructor(
    private readonly model: string,
    private readonly isChat: boolean,
    private readonly hasLogprobs: boolean,
  ) {
    super(false);
  }

  /** The answer to who asks for nothing but the model. */
  loaded(): object {
    return { ...this.#line(), done: true, done_reason: 'load' };
  }

  closing(completion: Completion, times: AnswerTimes): object[] {
    return [{ ...this.#line(), ...this.#end(completion, times) }];
  }

  broken({ message }: ApiError): object[] {
    return [{ error: message }];
  }

  protected done(completion: Completion, times: AnswerTimes): object {
    const calls = this.parts.filter(({ kind }) => kind === 'call');
    const line = this.#line(this.said('text'), this.said('reasoning'), calls);
    const logprobs = this.parts.flatMap((part) => part.logprobs);
    return { ...line, ...this.#end(completion, times), ...this.#chances(logprobs) };
  }

  protected began(): object[] {
    return [];
  }

  protected added({ kind }: Part, delta: string, logprobs: CompletionEvent['logprobs']): object[] {
    if (kind === 'call') return [];
    const line = kind === 'text' ? this.#line(delta) : this.#line('', delta);
    return [{ ...line, done: false, ...this.#chances(logprobs) }];
  }

  /** Calls are told whole. */
  protected ended(part: Part): object[] {
    return part.kind === 'call' ? [{ ...this.#line('', '', [part]), done: false }] : [];
  }

  #line(text = '', thinking = '', calls: readonly Part[] = []): object {
    const head = { model: this.model, created_at: new Date().toISOString() };
    const thought = thinking === '' ? {} : { thinking };
    if (!this.isChat) return { ...head, response: text, ...thought };
    const before = this.parts.filter(({ kind }) => kind === 'call');
    const tool_calls = calls.map((part) => ({
      id: part.call!.id,
      function: { index: before.indexOf(part), name: part.call!.name, arguments: inputOf(part.text) },
    }));
    return {
      ...head,
      message: { role: 'assistant', content: text, ...thought, ...(tool_calls.length > 0 && { tool_calls }) },
    };
  }

  #chances(logprobs: CompletionEvent['logprobs']): object {
    return this.hasLogprobs ? { logprobs: chancesOf(logprobs) } : {};
  }

  #end({ promptTokens, completionTokens }: Completion, { began, asked, first, end }: AnswerTimes): object {
    return {
      done: true,
      done_reason: this.isCut ? 'length' : 'stop',
      total_duration: nanoseconds(end - began),
      load_duration: nanoseconds(asked - began),
      prompt_eval_count: promptTokens,
      prompt_eval_duration: nanoseconds(first - asked),
      eval_count: completionTokens,
      eval_duration: nanoseconds(end - first),
    };
  }
}

/** Of /api/embed, and of the older /api/embeddings, which has one text. */
export function ollamaEmbeddings(
  isOld: boolean,
  model: string,
  embeddings: readonly Float32Array[],
  promptTokens: number,
  { began, asked }: Pick<AnswerTimes, 'began' | 'asked'>,
): object {
  if (isOld) return { embedding: [...embeddings[0]!] };
  return {
    model,
    embeddings: embeddings.map((vector) => [...vector]),
    total_duration: nanoseconds(performance.now() - began),
    load_duration: nanoseconds(asked - began),
    prompt_eval_count: promptTokens,
  };
}
