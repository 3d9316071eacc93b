import { isLoss, SplitkvError } from '../../base/errors.js';
import { load, networkOf } from '../../engine/load.js';
import { planModel } from '../../engine/on_demand.js';
import { forgetFiles } from '../../engine/files/open_files.js';
import type {
  ChatMessage,
  Conversation,
  GenerateOptions,
  GenerateResult,
  LoadOptions,
  LoadProgress,
  Model,
  PlanReport,
  SavedConversation,
} from '../../index.js';
import { inBackgroundToo } from './background.js';
import { SelfTestFailure } from './explain.js';
import { type ChatSettings, everyAdapter } from './settings.js';

/**
 * 'looking': at the model's files and at the GPU; 'asking': whether to download; 'checking': the self-test; 'recovering': lost
 * ranks are brought back.
 */
export type ChatState =
  | 'empty'
  | 'looking'
  | 'asking'
  | 'loading'
  | 'checking'
  | 'ready'
  | 'answering'
  | 'recovering'
  | 'failed';

/** What a session tells. */
export interface SessionEvents {
  state(state: ChatState): void;
  preview(report: PlanReport): void;
  /** What is being measured, for people. */
  measuring(what: string): void;
  progress(progress: LoadProgress): void;
  loaded(model: Model): void;
  /** The next piece of the answer. */
  piece(text: string): void;
  /** Something to know that stops nothing. */
  notice(text: string): void;
  failed(error: unknown): void;
}

/** An answer, and how much of its time the tab was hidden. */
export interface Answer {
  readonly result: GenerateResult;
  readonly text: string;
  readonly hiddenSeconds: number;
}

/** A driver that goes away each time has to be given up. */
const RECOVERIES = 3;

/** A chat without its looks: looks at a model, loads and tests it, answers, and goes on after a lost GPU. */
export class ChatSession {
  #state: ChatState = 'empty';
  #where: string | URL | readonly File[] | undefined;
  #settings: ChatSettings | undefined;
  #options: LoadOptions = {};
  #model: Model | undefined;
  #work = new AbortController();
  #answering: AbortController | undefined;
  #messages: ChatMessage[] = [];
  /** As the model was told `#messages`; `key`: by which settings. */
  #talk: { readonly key: string; readonly own: Conversation } | undefined;

  constructor(private readonly events: SessionEvents) {}

  get state(): ChatState {
    return this.#state;
  }

  get model(): Model | undefined {
    return this.#model;
  }

  get messages(): readonly ChatMessage[] {
    return this.#messages;
  }

  /** What the model is or was to be loaded with. */
  get options(): LoadOptions {
    return this.#options;
  }

  /** Looks at a model, and loads it where nobody need be asked. What there was before ends. */
  async open(where: string | URL | readonly File[], settings: ChatSettings, options = settings.load): Promise<void> {
    const signal = await this.#begin();
    if (signal.aborted) return;
    this.#where = where;
    this.#settings = settings;
    this.#messages = [];
    this.#talk = undefined;
    await this.#guard(signal, async () => {
      this.#become('looking');
      this.#options = options.ranks === undefined ? { ...options, ranks: await everyAdapter() } : options;
      if (!settings.autostart && !(await this.#look(signal))) return;
      await this.#load(signal);
    });
  }

  /** Takes what can change while a model is loaded: how it answers, from the next question on, and whether to ask before a download. */
  adjust(settings: ChatSettings): void {
    this.#settings = settings;
    if (settings.autostart) void this.start();
  }

  /** Ends what there was: what the session was told can't be understood. */
  async refuse(error: unknown): Promise<void> {
    const signal = await this.#begin();
    if (signal.aborted) return;
    this.#become('failed');
    this.events.failed(error);
  }

  /** Downloads and loads what was looked at. */
  async start(): Promise<void> {
    if (this.#state !== 'asking') return;
    const { signal } = this.#work;
    await this.#guard(signal, () => this.#load(signal));
  }

  /** The same model with other options. */
  async retry(options: LoadOptions = this.#options): Promise<void> {
    if (this.#where && this.#settings) await this.open(this.#where, { ...this.#settings, autostart: true }, options);
  }

  /** The same model, of which nothing that this browser kept is used any more. */
  async downloadAgain(): Promise<void> {
    const where = this.#where;
    if (!where) return;
    const signal = await this.#begin();
    let ready = false;
    await this.#guard(signal, async () => {
      this.#become('looking');
      await forgetFiles(where, networkOf(this.#options), signal);
      ready = !signal.aborted;
    });
    if (ready) await this.retry();
  }

  /** Whether the model comes over the network. */
  get downloaded(): boolean {
    return this.#where !== undefined && !Array.isArray(this.#where);
  }

  /** Brings lost ranks back. */
  async recover(): Promise<void> {
    const model = this.#model;
    if (!model) return;
    const { signal } = this.#work;
    await this.#guard(signal, async () => {
      this.#become('recovering');
      await model.recover({ signal });
      this.#become('ready');
    });
  }

  /** Goes on with a model that failed its self-test. */
  ignore(): void {
    if (this.#state !== 'failed' || !this.#model) return;
    this.events.loaded(this.#model);
    this.#become('ready');
  }

  /** Answers a message; undefined where it didn't come to an answer, and `failed` has told why. */
  async send(text: string): Promise<Answer | undefined> {
    const model = this.#model;
    if (this.#state !== 'ready' || !model) return undefined;
    const { signal: work } = this.#work;
    const question = { role: 'user', content: text } as const;
    this.#answering = new AbortController();
    const signal = AbortSignal.any([work, this.#answering.signal]);
    this.#become('answering');
    const conversation = this.#messages;
    let answer: Answer | undefined;
    const step = async (): Promise<void> => {
      const written = await this.#answer(model, question, signal);
      if (work.aborted) return; // the session goes on with something else
      answer = written;
      if (conversation === this.#messages) {
        this.#messages = [...conversation, question, { role: 'assistant', content: answer.text }];
      }
      this.#become('ready');
    };
    // What a question did wrong leaves the model as it was.
    await this.#guard(work, step, (error) => (isLoss(error) ? 'failed' : 'ready'));
    this.#answering = undefined;
    return answer;
  }

  /** Ends the answer that is being written; what there is of it stays. Ends a download too: what there is of it stays as well. */
  stop(): void {
    if (this.#answering) this.#answering.abort();
    else if (this.#state === 'loading' || this.#state === 'looking') this.#work.abort();
  }

  /** Forgets the conversation. */
  clear(): void {
    this.#answering?.abort();
    this.#messages = [];
    this.#talk = undefined;
    if (this.#state === 'failed' && this.#model) this.#become('ready');
  }

  async close(): Promise<void> {
    await this.#begin();
    this.#become('empty');
  }

  /** Ends what is under way. The signal is that of what comes next. */
  async #begin(): Promise<AbortSignal> {
    this.#work.abort();
    this.#work = new AbortController();
    const { signal } = this.#work;
    const before = this.#model;
    this.#model = undefined;
    await before?.dispose();
    return signal;
  }

  /** Whether it can start without asking: all is here, and it fits. */
  async #look(signal: AbortSignal): Promise<boolean> {
    const { weights, kv, variants, precision, contextLength, ranks, plan, virtualRanks, memory, integrity } =
      this.#options;
    const report = await planModel(this.#where!, {
      ...(weights !== undefined && { weights }),
      ...(kv !== undefined && { kv }),
      ...(variants !== undefined && { variants }),
      ...(precision !== undefined && { precision }),
      ...(contextLength !== undefined && { contextLength }),
      ...(ranks !== undefined && { ranks }),
      ...(typeof plan === 'string' && { plan }),
      ...(virtualRanks !== undefined && { virtualRanks }),
      ...(memory !== undefined && { memory }),
      ...(integrity !== undefined && { integrity }),
      ...networkOf(this.#options),
      tryMemory: true,
      signal,
      onProgress: (what) => this.events.measuring(what),
    });
    if (signal.aborted) return false;
    this.events.preview(report);
    if (this.#settings!.autostart) return true; // since it was opened
    if (report.download?.complete && report.pick && report.misfit === undefined) return true;
    this.#become('asking');
    return false;
  }

  async #load(signal: AbortSignal): Promise<void> {
    this.#become('loading');
    const { result: model } = await inBackgroundToo(() =>
      load(this.#where!, {
        ...this.#options,
        signal,
        onProgress: (progress) => this.events.progress(progress),
        onWarning: (message) => this.events.notice(message),
      }),
    );
    if (signal.aborted) return model.dispose();
    this.#model = model;
    if (this.#settings!.selfTest) await this.#test(model, signal);
    this.events.loaded(model);
    this.#become('ready');
  }

  async #test(model: Model, signal: AbortSignal): Promise<void> {
    this.#become('checking');
    const { passed, problem, damaged } = await model.selfTest({ signal });
    if (!passed) throw damaged ? new SplitkvError('io', problem!) : new SelfTestFailure(problem!);
  }

  /** After a loss the ranks are brought back, and the same seed gives the same tokens again: what was written stays as it is. */
  async #answer(model: Model, question: ChatMessage, signal: AbortSignal): Promise<Answer> {
    const { sampling } = this.#settings!;
    const seed = sampling.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!;
    const written = { text: '' };
    const { result, hiddenSeconds } = await inBackgroundToo(async () => {
      for (let losses = 0; ; losses++) {
        try {
          return await this.#write(model, question, { ...model.info.sampling, ...sampling, seed, signal }, written);
        } catch (error) {
          if (!isLoss(error) || signal.aborted || losses === RECOVERIES) throw error;
          this.#become('recovering');
          await model.recover({ signal });
          this.events.notice('The GPU went away and is back; the answer goes on.');
          this.#become('answering');
        }
      }
    });
    return { result, text: result.text.trim(), hiddenSeconds };
  }

  /** Generates, and tells what goes beyond what was written before. */
  async #write(
    model: Model,
    { content }: ChatMessage,
    options: GenerateOptions,
    written: { text: string },
  ): Promise<GenerateResult> {
    const generation = model.info.hasChatTemplate
      ? this.#conversation(model).send(content ?? '', options)
      : model.generate(this.#about === undefined ? (content ?? '') : `${this.#about.trim()} ${content}`, options);
    let text = '';
    for await (const piece of generation) {
      text += piece;
      if (text.length <= written.text.length) continue;
      this.events.piece(text.slice(written.text.length));
      written.text = text;
    }
    return generation.result;
  }

  get #about(): string | undefined {
    return this.#settings!.about;
  }

  /** The conversation with the model; goes on with what was said where only the settings are others. */
  #conversation(model: Model): Conversation {
    const { system } = this.#settings!;
    const about = this.#about;
    const key = JSON.stringify([system, about]);
    if (this.#talk?.key !== key) {
      const { system: _, ...before } = this.#talk?.own.save() ?? {};
      const own = model.conversation({
        ...(system !== undefined && { system }),
        ...(about !== undefined && { about }),
        ...('turns' in before && { restore: before as SavedConversation }),
      });
      this.#talk = { key, own };
    }
    return this.#talk.own;
  }

  #become(state: ChatState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.events.state(state);
  }

  /** Runs a step; its failure is told once, unless something else was begun meanwhile. */
  async #guard(
    signal: AbortSignal,
    step: () => Promise<void>,
    after: (error: unknown) => ChatState = () => 'failed',
  ): Promise<void> {
    try {
      await step();
    } catch (error) {
      if (signal !== this.#work.signal) return;
      if (signal.aborted) this.#work = new AbortController();
      this.#become(after(error));
      this.events.failed(error);
    }
  }
}
