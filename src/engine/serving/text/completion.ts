/**
 * Room: answers as text: a request's tokens become pieces of text with their probabilities, stop texts end them, and
 * n answers share a prompt. RunningCompletion (here) is what `complete` gives back. Read answer.ts next.
 */

import { DEFAULT_MAX_TOKENS } from '../../contracts/options/sampling_rows.js';
import { abortedError, usageError } from '../../../base/errors.js';
import { defined, checkOptions, type OptionsSchema, wholeNumber } from '../../../base/options.js';
import type { AnswerFrame } from '../../../grammar/answer_frame.js';
import type { Tokenizer } from '../../../tokenizer/index.js';
import { checkSampling, randomSeed } from '../../ranks/sampling/sampling.js';
import { engineSampling } from '../../ranks/sampling/sampling_options.js';
import { Answer } from './answer.js';
import { answerSchema, checkTools, frameOf, readerOf } from './reading.js';
import { checkForm, type TextForms, wantsForm } from './forms.js';
import type { Completion, CompletionEvent, CompletionOptions } from '../api.js';
import type { Constraint, EngineHandle, EngineRequest } from '../loop/requests.js';
import type { Engine } from '../engine.js';
import { wantsDrafts } from '../speculation/speculate_option.js';
import { EventQueue } from './event_queue.js';
import type { Histogram } from '../histogram.js';
import { PromptEcho } from './logprobs.js';

const MAX_ANSWERS = 128;
const MAX_LOGPROBS = 20;

const schema: OptionsSchema<CompletionOptions> = {
  ...answerSchema,
  n: wholeNumber(1, MAX_ANSWERS),
  maxTokens: wholeNumber(0),
  echo: true,
  logprobs: wholeNumber(0, MAX_LOGPROBS),
  priority: true,
  client: true,
  firstTokenSeconds: true,
  progress: true,
};

/** Where completions run, and who wants to know how they went. */
export interface CompletionHost {
  readonly engine: Engine;
  readonly tokenizer: Tokenizer | undefined;
  readonly eosIds: readonly number[];
  readonly vocabSize: number;
  readonly forms: TextForms;
  /** Answers to one prompt share its cache: the others wait until the first has computed it. */
  readonly sharesPrompt: boolean;
  readonly firstToken: Histogram;
  readonly nextToken: Histogram;
  /** An answer began (+1) or ended (-1). */
  readonly count: (change: 1 | -1) => void;
}

interface Part {
  readonly index: number;
  readonly request: Omit<EngineRequest, 'onToken'>;
  readonly answer: Answer;
  /** What its tokens are held to; there before it is submitted. */
  constraint: Constraint | undefined;
  /** What the answer begins with, until it is told. */
  echo: PromptEcho | undefined;
  handle: EngineHandle | undefined;
  ended: boolean;
  lastToken: number | undefined;
  /** Tokens that no event has told. */
  untold: number[];
  /** Tokens of the prompt that are there, as far as that was told. */
  there: number;
}

/** Answers to one or several prompts, as they come. */
export class RunningCompletion implements Completion {
  readonly promptTokens: number;
  readonly seed: number;
  readonly #started = performance.now();
  readonly #events = new EventQueue<CompletionEvent>();
  readonly #parts: readonly Part[];
  #unfinished: number;
  readonly #onAbort = (): void => this.abort();

  /**
   * @param chats which prompts are of messages
   * @throws SplitkvError as `ServingModel.complete`; nothing runs then
   */
  constructor(
    private readonly host: CompletionHost,
    readonly prompts: readonly (readonly number[])[],
    private readonly options: CompletionOptions,
    chats: readonly boolean[] = [],
  ) {
    const { n = 1, signal } = options;
    if (signal?.aborted) throw abortedError('complete', signal);
    this.seed = options.seed ?? randomSeed();
    checkCompletion(options, this.seed, host.vocabSize);
    this.promptTokens = prompts.reduce((sum, prompt) => sum + prompt.length, 0);
    this.#parts = prompts.flatMap((prompt, at) => {
      const echo = options.echo ? new PromptEcho(host.tokenizer, prompt, options.logprobs) : undefined;
      return Array.from({ length: n }, (_, answer) =>
        this.#part(prompt, at * n + answer, answer, echo, chats[at] ?? false),
      );
    });
    this.#unfinished = this.#parts.length;
    const shares = host.sharesPrompt || this.#echoesLogits;
    const leading = this.#parts.filter(({ index }) => !shares || index % n === 0);
    const frames = prompts.map((prompt, at) => frameOf(host.tokenizer, prompt, options, chats[at] ?? false));
    const waits = wantsForm(options) || frames.some((frame) => frame !== undefined);
    if (waits) for (const prompt of prompts) host.engine.ranks.runner.checkPrompt(prompt);
    this.#parts.forEach(() => host.count(1));
    try {
      if (waits) void this.#submitConstrained(leading, frames);
      else for (const part of leading) this.#submit(part);
    } catch (error) {
      this.abort();
      throw error;
    }
    signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** The prompt's own logits are wanted: its first answer gets them, and the others what was made of them. */
  get #echoesLogits(): boolean {
    return this.options.echo === true && this.options.logprobs !== undefined;
  }

  get cachedTokens(): number {
    const { n = 1 } = this.options;
    return this.#parts.reduce((sum, { index, handle }) => sum + (index % n === 0 ? (handle?.cachedTokens ?? 0) : 0), 0);
  }

  get completionTokens(): number {
    return this.#parts.reduce((sum, { answer }) => sum + answer.tokens, 0);
  }

  get reasoningTokens(): number {
    return this.#parts.reduce((sum, { answer }) => sum + answer.reasoningTokens, 0);
  }

  abort(): void {
    for (const part of this.#parts) {
      if (part.ended) continue;
      part.handle?.abort();
      this.#end(part, { index: part.index, ...part.answer.finish('aborted') });
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<CompletionEvent, void, undefined> {
    try {
      yield* this.#events.read();
    } finally {
      this.abort();
    }
  }

  #part(prompt: readonly number[], index: number, answer: number, echo: PromptEcho | undefined, isChat: boolean): Part {
    const { host, options } = this;
    const { maxTokens = DEFAULT_MAX_TOKENS, priority, client, adapter } = options;
    return {
      index,
      request: {
        ...engineSampling(options, host.eosIds),
        prompt,
        maxTokens,
        seed: answerSeed(this.seed, answer),
        speculate: wantsDrafts(host.engine, options.speculate),
        ...defined({ priority, client, adapter }),
        ...(options.logprobs !== undefined && { logits: true }),
        ...(echo && answer === 0 && this.#echoesLogits && { promptRows: { all: true, onRow: echo.onRow } }),
      },
      answer: new Answer(host.tokenizer, options, readerOf(host.tokenizer, prompt, options, isChat), echo?.text.length),
      echo,
      constraint: undefined,
      handle: undefined,
      ended: false,
      lastToken: undefined,
      untold: [],
      there: -1,
    };
  }

  #submit(part: Part): void {
    const { firstTokenSeconds, progress } = this.options;
    const waited = (performance.now() - this.#started) / 1000;
    part.handle = this.host.engine.submit({
      ...part.request,
      ...(part.constraint && { constraint: part.constraint }),
      ...(firstTokenSeconds !== undefined && { firstTokenSeconds: Math.max(0, firstTokenSeconds - waited) }),
      ...(progress && { onProgress: (there) => this.#tellProgress(part, there) }),
      onToken: (token, logits) => this.#onToken(part, token, logits),
    });
    part.handle.ended.then(
      (end) => {
        this.#submitOthers(part);
        if (end !== 'aborted') this.#tellPrompt(part);
        this.#end(part, { index: part.index, ...part.answer.finish(end), tokens: part.untold });
      },
      (reason: unknown) => this.#fail(reason),
    );
  }

  /** As soon as the form of the answers is ready. */
  async #submitConstrained(leading: readonly Part[], frames: readonly (AnswerFrame | undefined)[]): Promise<void> {
    try {
      const { n = 1, signal } = this.options;
      const forms = await Promise.all(frames.map((frame) => this.host.forms.compile(this.options, frame, { signal })));
      for (const part of this.#parts) if (!part.ended) part.constraint = forms[Math.floor(part.index / n)]?.start();
      for (const part of leading) if (!part.ended) this.#submit(part);
    } catch (error) {
      this.#fail(error);
    }
  }

  #onToken(part: Part, token: number, logits: Float32Array | undefined): boolean {
    if (part.ended) return true;
    const { firstToken, nextToken } = this.host;
    const now = performance.now();
    if (part.lastToken === undefined) firstToken.observe((now - this.#started) / 1000);
    else nextToken.observe((now - part.lastToken) / 1000);
    part.lastToken = now;
    try {
      this.#tellPrompt(part);
      part.untold.push(token);
      const out = part.answer.push(token, logits);
      if (out.text !== '' || out.reasoning || out.toolCalls || out.logprobs.length > 0)
        this.#events.push({ index: part.index, ...out, tokens: part.untold.splice(0) });
    } catch (error) {
      // One request's trouble isn't the engine's.
      this.#fail(error);
      return true;
    }
    this.#submitOthers(part);
    return part.answer.stopped;
  }

  /** Once for each step: what runs anew after a loss, or where there was no room, is there already. */
  #tellProgress(part: Part, there: number): void {
    if (part.ended || there <= part.there) return;
    const cached = part.there < 0 ? there : (part.handle?.cachedTokens ?? 0);
    part.there = there;
    const ms = performance.now() - this.#started;
    const progress = { total: part.request.prompt.length, cached, there, ms };
    this.#events.push({ index: part.index, text: '', logprobs: [], progress });
  }

  /** Before the first of the answer's own text. */
  #tellPrompt(part: Part): void {
    const { echo } = part;
    part.echo = undefined;
    if (echo && !part.ended) this.#events.push({ index: part.index, ...echo.out });
  }

  /** The prompt is computed: the other answers to it find it in the cache. */
  #submitOthers({ index }: Part): void {
    const { n = 1 } = this.options;
    if (index % n !== 0) return;
    try {
      for (const part of this.#parts.slice(index + 1, index + n)) if (!part.handle && !part.ended) this.#submit(part);
    } catch (error) {
      this.#fail(error);
    }
  }

  #end(part: Part, event: CompletionEvent): void {
    if (!this.#takeEnd(part)) return;
    this.#events.push(event);
    if (--this.#unfinished === 0) this.#close();
  }

  /** Takes the end of an answer; false where it had ended. */
  #takeEnd(part: Part): boolean {
    if (part.ended) return false;
    part.ended = true;
    if (!part.handle) part.constraint?.dispose();
    this.host.count(-1);
    return true;
  }

  #fail(reason: unknown): void {
    this.#events.end({ reason });
    for (const part of this.#parts) {
      part.handle?.abort();
      this.#takeEnd(part);
    }
    this.#close();
  }

  #close(): void {
    this.options.signal?.removeEventListener('abort', this.#onAbort);
    this.#events.end();
  }
}

function checkCompletion(options: CompletionOptions, seed: number, vocabSize: number): void {
  checkOptions('complete', options, schema);
  if (options.maxTokens === 0 && !options.echo) {
    throw usageError('maxTokens 0: expected at least 1, or echo: true for the prompt itself');
  }
  checkForm(options);
  checkTools(options);
  checkSampling({ maxTokens: DEFAULT_MAX_TOKENS, ...options, seed }, vocabSize);
  const { firstTokenSeconds } = options;
  if (firstTokenSeconds !== undefined && !(Number.isFinite(firstTokenSeconds) && firstTokenSeconds >= 0)) {
    throw usageError(`firstTokenSeconds ${String(firstTokenSeconds)}: expected a number of at least 0`);
  }
}

/**
 * The seed of an answer among several: the first one's is the request's own. The others' are mixed (the finaliser of murmur3, 24
 * bits of each half), so that neighbouring requests share none.
 */
export function answerSeed(seed: number, index: number): number {
  if (index === 0) return seed;
  const low = mix((seed >>> 0) ^ Math.imul(index, 0x9e3779b9));
  const high = mix(Math.floor(seed / 2 ** 32) ^ Math.imul(low, 0x85ebca6b) ^ index);
  return (high >>> 8) * 2 ** 24 + (low >>> 8);
}

function mix(value: number): number {
  let bits = value >>> 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
