import { defined } from '../../base/options.js';
import { codeOf, ioError, isLoss, messageOf, usageError } from '../../base/errors.js';
import { networkOf } from '../../engine/contracts/load_options.js';
import { namedByDegrees } from '../../engine/planning/degrees.js';
import { load, planModel } from '../../entry.js';
import { forgetFiles } from '../../engine/files/open_files.js';
import { holdLock } from '../../loader/cache/opfs.js';
import type {
  ChatMessage,
  ContentPart,
  Conversation,
  GenerateOptions,
  GenerateResult,
  Generation,
  LoadOptions,
  LoadProgress,
  Model,
  PlanReport,
  SamplingOptions,
  SavedConversation,
} from '../../index.js';
import { type Attached, contentOf, isAttached, promptOf, type Takes } from './attached.js';
import { SelfTestFailure, smallerOptions, tooLong } from './explain.js';
import { type MadeCall, type PageTools, runCall, toolMessages, toolsOf } from './page_tools.js';
import { type ChatSettings, everyAdapter, readSettings } from './settings.js';

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

export interface SessionEvents {
  state(state: ChatState): void;
  /** @param smaller options with which it was checked to fit, where it doesn't fit as asked */
  preview(report: PlanReport, smaller: readonly LoadOptions[]): void;
  /** Whether to load on a cluster's ranks: nothing of them is known before. */
  asks(options: LoadOptions): void;
  /** What is being measured, for people. */
  measuring(what: string): void;
  progress(progress: LoadProgress): void;
  loaded(model: Model): void;
  piece(text: string): void;
  /** What was said on the way to the answer. */
  thought(text: string): void;
  /** A tool is called. @returns is told whether it failed */
  called(name: string): (failed: boolean) => void;
  /** Something to know that stops nothing. */
  notice(text: string): void;
  failed(error: unknown, smaller: readonly LoadOptions[]): void;
  /** The GPU was lost and is back: the answer goes on. */
  recovered(): void;
}

export interface ShownMessage {
  readonly role: 'user' | 'assistant';
  readonly content: string;
  /** What a model that reasons said on the way to its answer. */
  readonly reasoning?: string;
  /** Tools that were called on the way to an answer: what was said with them, and what came of them. */
  readonly steps?: readonly ToolStep[];
  /** The answer was cut, at the token limit or by a stop: it can go on. */
  readonly cut?: boolean;
  /** What goes with a question. */
  readonly attached?: readonly Attached[];
  /** What else was said from this message on. */
  readonly versions?: Versions;
}

/** A question that was edited and an answer that was asked for again stay: each with what followed it. */
export interface Versions {
  /** Where the one that is shown stands among them, from 0. */
  readonly at: number;
  /** The others: messages from the one that has them to the end. */
  readonly others: readonly (readonly ShownMessage[])[];
}

/** Tools that a model called at once. */
export interface ToolStep {
  readonly text: string;
  readonly calls: readonly MadeCall[];
}

/** A conversation as it can be kept: plain JSON. */
export interface SavedChat {
  readonly messages: readonly ShownMessage[];
  /** With the tokens that were generated, so that it goes on with the same bits. */
  readonly talk?: SavedConversation;
}

export interface Answer {
  /** Of the last part, where tools were called in between. */
  readonly result: GenerateResult;
  readonly text: string;
  /** Tools that were called on the way. */
  readonly steps: readonly ToolStep[];
}

/** Of an answer that is to be another one, where answers are the likeliest tokens. */
const OTHERWISE_TEMPERATURE = 0.7;
/** A model that calls tools on and on has to answer. */
const MOST_STEPS = 8;
/** A driver that goes away each time has to be given up. */
const RECOVERIES = 3;

const NOWHERE: readonly File[] = [];

interface How {
  /** The likeliest tokens would give the same answer again: it is drawn. */
  readonly another?: boolean;
  /** This answer goes on. */
  readonly begun?: ShownMessage;
  /** What the answer is beside. */
  readonly versions?: Versions | undefined;
}

/** What was told of an answer, or of a part of it. */
interface Written {
  text: string;
  thought: string;
}

/** A chat without its looks: looks at a model, loads and tests it, answers, and goes on after a lost GPU. */
export class ChatSession {
  #state: ChatState = 'empty';
  #where: string | URL | readonly File[] = NOWHERE;
  #settings = readSettings(() => null);
  #options: LoadOptions = {};
  /** Somebody wants it downloaded. */
  #agreed = false;
  #model: Model | undefined;
  #work = new AbortController();
  #answering: AbortController | undefined;
  #messages: readonly ShownMessage[] = [];
  /** As the model was told `#messages`; `key`: by which settings. */
  #talk: { readonly key: string; readonly own: Conversation } | undefined;
  /** What `#talk` begins with where there is none yet. */
  #saved: SavedConversation | undefined;
  /** What the last answer was generated with, as far as it is known: its tokens, and how they were drawn. */
  #last: { readonly tokens: readonly number[]; readonly sampling: SamplingOptions } | undefined;
  /** The form that answers are to have. */
  responseFormat: GenerateOptions['responseFormat'];
  /** What the model may call. With tools each question is told with all that was said. */
  tools: PageTools | undefined;
  /** Where the context is full, the oldest turns are left out. */
  forget = false;
  /** Keys and values of what was said are kept as well, so that a reload needn't compute them. */
  keepsKv = false;

  constructor(private readonly events: SessionEvents) {}

  get state(): ChatState {
    return this.#state;
  }

  get model(): Model | undefined {
    return this.#model;
  }

  get messages(): readonly ShownMessage[] {
    return this.#messages;
  }

  /** How many questions were answered. */
  get turns(): number {
    return this.#messages.length / 2;
  }

  get canForget(): boolean {
    return (
      this.turns > 0 &&
      !this.forget &&
      !this.tools &&
      this.#about === undefined &&
      this.#model?.info.hasChatTemplate === true
    );
  }

  save(): SavedChat {
    const talk = this.#talk?.own.save() ?? this.#saved;
    return { messages: this.#messages, ...(talk && { talk: { ...talk, ...(this.keepsKv && { kv: true }) } }) };
  }

  /** Goes on with a conversation that was saved, or that a page gives: questions and answers by turns. */
  restore({ messages, talk }: SavedChat): void {
    this.#answering?.abort();
    this.#messages = messages;
    this.#talk = this.#last = undefined;
    this.#saved = talk;
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
    this.#agreed = settings.autostart;
    this.#state = 'empty'; // whoever listens is told of each model
    await this.#guard(signal, async () => {
      this.#become('looking');
      const { ranks } = await namedByDegrees(options);
      const isHere = ranks === undefined && !options.cluster;
      this.#options = isHere ? { ...options, ranks: await everyAdapter() } : options;
      const begin = async (): Promise<void> => {
        if (settings.autostart || (await this.#look(signal))) await this.#load(signal);
      };
      await begin().catch((error: unknown) => {
        const { images, sound, ...others } = this.#options;
        if ((!images && !sound) || codeOf(error) !== 'unsupported') throw error;
        // A model that takes no pictures, or no sound, is loaded for what it does.
        const rest = messageOf(error).startsWith('sound:') ? { images } : { sound };
        this.#options = { ...others, ...defined(rest) };
        return begin().catch((second: unknown) => {
          if (codeOf(second) !== 'unsupported') throw second;
          this.#options = others;
          return begin();
        });
      });
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
    this.events.failed(error, []);
  }

  /** Downloads and loads what was looked at. */
  async start(): Promise<void> {
    if (this.#state !== 'asking') return;
    this.#agreed = true;
    const { signal } = this.#work;
    await this.#guard(signal, () => this.#load(signal));
  }

  /** The same model; with options those instead. Where nobody has agreed to download it yet, it is looked at first. */
  async retry(options?: LoadOptions): Promise<void> {
    const autostart = options !== undefined || this.#agreed;
    if (this.#where === NOWHERE) return;
    await this.open(this.#where, { ...this.#settings, autostart }, options ?? this.#options);
  }

  /** The same model, of which nothing that this browser kept is used any more. */
  async downloadAgain(): Promise<void> {
    const where = this.#where;
    if (where === NOWHERE) return;
    const signal = await this.#begin();
    let ready = false;
    await this.#guard(signal, async () => {
      this.#become('looking');
      await forgetFiles(where, networkOf(this.#options), signal);
      ready = !signal.aborted;
    });
    if (ready) await this.retry(this.#options);
  }

  /** Whether the model comes over the network. */
  get downloaded(): boolean {
    return !Array.isArray(this.#where);
  }

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

  /**
   * Answers a message; undefined where it didn't come to an answer, and `failed` has told why.
   * @param turn the turns before it that stay; what came after them becomes a version beside it, unless there is no answer
   * @param another the likeliest tokens would give the same answer again: it is drawn
   */
  async send(
    content: string,
    turn = this.turns,
    another = false,
    attached: readonly Attached[] = [],
  ): Promise<Answer | undefined> {
    const model = this.#model;
    if (this.#state !== 'ready' || !model) return undefined;
    const before = this.save();
    const isAgain = turn < this.turns;
    const versions = isAgain ? versionsWith(before.messages, turn * 2 + (another ? 1 : 0)) : undefined;
    const beside = another ? before.messages[turn * 2]?.versions : versions;
    if (isAgain) this.#rewind(turn);
    const kept = this.#messages;
    const question = {
      role: 'user',
      content,
      ...(attached.length > 0 && { attached }),
      ...(beside && { versions: beside }),
    } as const;
    const answer = await this.#sendNext(model, question, { another, versions: another ? versions : undefined });
    if (!answer && turn < before.messages.length / 2 && kept === this.#messages) this.restore(before);
    return answer;
  }

  /** The last answer goes on where it was cut; undefined where it can't, or `failed` has told why. */
  async continue(): Promise<Answer | undefined> {
    const model = this.#model;
    const [question, begun] = this.#messages.slice(-2);
    if (this.#state !== 'ready' || !model || !question || !begun?.cut) return undefined;
    const whole = this.#messages;
    this.#messages = whole.slice(0, -2);
    const before = this.#messages;
    const answer = await this.#sendNext(model, question, { begun, versions: begun.versions });
    if (!answer && this.#messages === before) this.#messages = whole;
    return answer;
  }

  #rewind(turns: number): void {
    const own = this.#talk?.own;
    const told = own?.messages.filter(({ role }) => role === 'user').length ?? 0;
    own?.undo(Math.min(told, this.turns - turns)); // the oldest may have been forgotten
    this.#messages = this.#messages.slice(0, turns * 2);
    if (!own) this.#saved = undefined;
  }

  async #sendNext(model: Model, question: ShownMessage, how: How): Promise<Answer | undefined> {
    const { signal: work } = this.#work;
    this.#answering = new AbortController();
    const signal = AbortSignal.any([work, this.#answering.signal]);
    this.#become('answering');
    const conversation = this.#messages;
    let answer: Answer | undefined;
    const step = async (): Promise<void> => {
      const written = await this.#answer(model, question, how, signal);
      if (work.aborted) return; // the session goes on with something else
      answer = written;
      if (conversation === this.#messages) {
        const { reasoning, finish_detail: end } = answer.result;
        const { steps } = answer;
        const cut = end === 'max_tokens' || end === 'aborted';
        const more = { ...(reasoning && { reasoning }), ...(steps.length > 0 && { steps }), ...(cut && { cut }) };
        const beside = how.versions && { versions: how.versions };
        this.#messages = [...conversation, question, { role: 'assistant', content: answer.text, ...more, ...beside }];
        if (this.tools) this.#talk = this.#saved = undefined; // it wasn't told of this
        // Nobody waits for what is only sooner, and what can't be kept is computed.
        if (this.keepsKv) void this.#talk?.own.save({ kv: true }).catch(() => {});
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

  clear(): void {
    this.#answering?.abort();
    this.#messages = [];
    this.#talk = this.#saved = this.#last = undefined;
    this.forget = false;
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
    this.restore(this.save()); // by another model, or the same one anew
    await before?.dispose();
    return signal;
  }

  /** Whether it can start without asking: all is here, and it fits. */
  async #look(signal: AbortSignal): Promise<boolean> {
    if (this.#options.cluster) {
      this.events.asks(this.#options);
      if (this.#settings.autostart) return true; // since it was opened
      this.#become('asking');
      return false;
    }
    const report = await this.#plan(this.#options, signal);
    if (signal.aborted) return false;
    const fits = report.pick && report.misfit === undefined;
    const smaller = fits ? [] : await this.#smaller(report.weights, signal);
    if (signal.aborted) return false;
    this.events.preview(report, smaller);
    if (this.#settings.autostart) return true; // since it was opened
    if (report.download?.complete && fits) return true;
    this.#become('asking');
    return false;
  }

  #plan(options: LoadOptions, signal: AbortSignal): Promise<PlanReport> {
    const { plan, onProgress: _, ...load } = options;
    return planModel(this.#where, {
      ...load,
      ...(typeof plan === 'string' && { plan }),
      // Of a model that another tab has none is taken.
      tryMemory: !load.share,
      signal,
      onProgress: (what) => this.events.measuring(what),
    });
  }

  /** Options that take less memory, of which the planner says that they fit. */
  async #smaller(weights: string | undefined, signal: AbortSignal): Promise<LoadOptions[]> {
    const found: LoadOptions[] = [];
    // What fits on other machines isn't known here.
    if (this.#options.cluster) return found;
    try {
      const now = weights ?? (await this.#plan(this.#options, signal)).weights;
      for (const options of smallerOptions(this.#options, now)) {
        if (signal.aborted || found.length === 2) break;
        const report = await this.#plan(options, signal);
        if (report.pick && report.misfit === undefined) found.push(options);
      }
    } catch {
      // Nothing is offered that wasn't seen to fit.
    }
    return found;
  }

  /** Options with a context that holds what was too long, and an answer, of which the planner says that they fit. */
  async #longer(error: unknown, signal: AbortSignal): Promise<LoadOptions[]> {
    const { tokens } = tooLong(error) ?? {};
    if (tokens === undefined || this.#options.cluster) return [];
    const room = Math.min(this.#settings.sampling.maxTokens, tokens);
    const options = { ...this.#options, contextLength: Math.ceil((tokens + room) / 1024) * 1024 };
    // The model may have fewer positions.
    const report = await this.#plan(options, signal).catch(() => undefined);
    return report?.pick && report.misfit === undefined ? [options] : [];
  }

  async #load(signal: AbortSignal): Promise<void> {
    this.#become('loading');
    const model = await inBackgroundToo(() =>
      load(this.#where, {
        ...this.#options,
        ...(Array.isArray(this.#where) && { share: false, idle: undefined }), // somebody's files are of this tab
        signal,
        onProgress: (progress) => this.events.progress(progress),
        onWarning: (message) => this.events.notice(message),
      }),
    );
    if (signal.aborted) return model.dispose();
    this.#model = model;
    if (this.#settings.selfTest) {
      this.#become('checking');
      const { passed, problem = '', damaged } = await model.selfTest({ signal });
      if (!passed) throw damaged ? ioError(problem) : new SelfTestFailure(problem);
    }
    this.events.loaded(model);
    this.#become('ready');
  }

  async #answer(model: Model, question: ShownMessage, { another, begun }: How, signal: AbortSignal): Promise<Answer> {
    const last = begun && this.#last;
    const { maxTokens, ...set } = this.#settings.sampling;
    const sampling: SamplingOptions = last?.sampling ?? { ...model.info.sampling, ...set };
    const drawn = another && !sampling.temperature ? { ...sampling, temperature: OTHERWISE_TEMPERATURE } : sampling;
    const seed = (another ? undefined : sampling.seed) ?? randomNumber();
    const { responseFormat, tools } = this;
    const options: GenerateOptions = {
      maxTokens,
      ...drawn,
      ...this.#settings.chat,
      ...(responseFormat !== undefined && { responseFormat }),
      seed,
      signal,
    };
    const steps: ToolStep[] = [...(begun?.steps ?? [])];
    const result = await inBackgroundToo(async () => {
      // An answer of before a reload is known to the conversation alone.
      if (!tools || (begun && !last))
        return this.#goingOn(model, signal, (written) =>
          this.#write(this.#ask(model, question, options, begun), written),
        );
      const withTools = { ...options, tools: toolsOf(tools) };
      for (let goesOn = last; ; goesOn = undefined) {
        const toolChoice = steps.length < MOST_STEPS ? 'auto' : 'none';
        const messages = this.#messagesWith(question, steps);
        const given = { ...withTools, toolChoice, ...(goesOn && { continueFrom: goesOn.tokens }) } as const;
        const done = await this.#goingOn(model, signal, (written) =>
          this.#write(model.generate({ messages }, given), written),
        );
        if (!done.tool_calls || done.finish_reason !== 'tool_calls') return done;
        const calls: MadeCall[] = [];
        for (const call of done.tool_calls) {
          const told = this.events.called(call.function.name);
          const made = await runCall(tools, call, signal);
          told(made.failed);
          calls.push(made);
        }
        steps.push({ text: done.text.trim(), calls });
        if (done.text.trim() !== '') this.events.piece('\n\n');
      }
    });
    // Without a template, and after a reload, it began as a part of the prompt.
    const asText = begun !== undefined && !last && !model.info.hasChatTemplate;
    this.#last = asText ? undefined : { tokens: result.tokens, sampling: { ...drawn, seed } };
    const text = asText ? begun.content + result.text.trimEnd() : result.text.trim();
    const said = [...steps.map((step) => step.text), text].filter((part) => part !== '');
    return { result, text: said.join('\n\n'), steps };
  }

  /** After a loss the ranks are brought back, and the same seed gives the same tokens again: what was written stays as it is. */
  async #goingOn<T>(model: Model, signal: AbortSignal, write: (written: Written) => Promise<T>): Promise<T> {
    const written: Written = { text: '', thought: '' };
    for (let losses = 0; ; losses++) {
      try {
        return await write(written);
      } catch (error) {
        if (!isLoss(error) || signal.aborted || losses === RECOVERIES) throw error;
        this.#become('recovering');
        await model.recover({ signal });
        this.events.recovered();
        this.#become('answering');
      }
    }
  }

  #ask(model: Model, question: ShownMessage, options: GenerateOptions, begun?: ShownMessage): Generation {
    const { hasChatTemplate, imagePlaceholder, soundPlaceholder } = model.info;
    const content = contentOf(question, this.takes);
    if (hasChatTemplate) {
      // The conversation puts a text before what is one.
      if (!begun)
        return this.#conversation(model).send(typeof content === 'string' ? content : this.#told(question), options);
      // It is the last turn of what the model was told.
      const told = this.#messages;
      this.#messages = [...told, question, begun];
      const talk = this.#conversation(model);
      this.#messages = told;
      return talk.continue(options);
    }
    const text = promptOf(this.#told(question), imagePlaceholder, soundPlaceholder);
    const last = begun && this.#last;
    const prompt = begun && !last ? `${text} ${begun.content}` : text;
    const parts = typeof content === 'string' ? [] : content;
    const images = parts.flatMap((part) => (part.type === 'image' ? part.image : []));
    const sounds = parts.flatMap((part) => (part.type === 'audio' ? part.audio : []));
    const asked = parts.length > 0 ? { prompt, images, sounds } : prompt;
    return model.generate(asked, { ...options, ...(last && { continueFrom: last.tokens }) });
  }

  /** A question with what goes with it, and the text that it is about. */
  #told(question: ShownMessage): string | readonly ContentPart[] {
    const about = this.#about === undefined ? '' : `${this.#about.trim()} `;
    return contentOf({ ...question, content: about + question.content }, this.takes);
  }

  /** Of the model that is loaded. */
  get takes(): Takes {
    const { imagePlaceholder, soundPlaceholder } = this.#model?.info ?? {};
    return { images: imagePlaceholder !== undefined, sounds: soundPlaceholder !== undefined };
  }

  /** All that was said, with a question and the tools that were called for it so far. */
  #messagesWith(question: ShownMessage, steps: readonly ToolStep[]): ChatMessage[] {
    const { system } = this.#settings;
    const stepsOf = (list: readonly ToolStep[]) => list.flatMap(({ text, calls }) => toolMessages(text, calls));
    const before = this.#messages.flatMap((message): ChatMessage[] => {
      const { role, content, steps: made = [] } = message;
      if (role === 'user') return [{ role, content: contentOf(message, this.takes) }];
      // What was said with the calls stands with them.
      const said = made.map(({ text }) => text).filter((text) => text !== '');
      const rest = said.reduce((left, text) => left.slice(left.startsWith(text) ? text.length : 0).trim(), content);
      return [...stepsOf(made), { role, content: rest }];
    });
    return [
      ...(system === undefined ? [] : [{ role: 'system', content: system } as const]),
      ...(this.#about === undefined ? before : []),
      { role: 'user', content: this.#told(question) },
      ...stepsOf(steps),
    ];
  }

  /** Tells what goes beyond what was written before. */
  async #write(generation: Generation, written: Written): Promise<GenerateResult> {
    let [text, thought] = ['', ''];
    for await (const delta of generation.deltas()) {
      thought += delta.reasoning ?? '';
      text += delta.text;
      if (thought.length > written.thought.length) {
        this.events.thought(thought.slice(written.thought.length));
        written.thought = thought;
      }
      if (text.length > written.text.length) {
        this.events.piece(text.slice(written.text.length));
        written.text = text;
      }
    }
    return generation.result;
  }

  get #about(): string | undefined {
    return this.#settings.about;
  }

  /** The conversation with the model; goes on with what was said where only the settings are others. */
  #conversation(model: Model): Conversation {
    const { system } = this.#settings;
    const about = this.#about;
    const whenFull = this.forget ? 'forget' : 'error';
    const key = JSON.stringify([system, about, whenFull]);
    if (this.#talk?.key !== key) {
      const settings = { ...defined({ system, about }), whenFull } as const;
      const told = this.#toldBy(model.conversation(settings).save(), this.#talk?.own.save() ?? this.#saved);
      const { system: _, ...restore } = told;
      const own = model.conversation({ ...settings, restore });
      this.#talk = { key, own };
      this.#saved = undefined;
    }
    return this.#talk.own;
  }

  /** What was said so far: by its tokens where this model generated them, otherwise by its text. */
  #toldBy(none: SavedConversation, told: SavedConversation | undefined): SavedConversation {
    const { takes } = this;
    const isSame = told && told.model === none.model && told.version === none.version;
    const isTaken = ({ type }: ContentPart): boolean =>
      type === 'text' || takes[type === 'audio' ? 'sounds' : 'images'];
    if (isSame && told.turns.every(({ parts = [] }) => parts.every(isTaken))) return told;
    const turns = turnsOf(this.#messages).map(([question, answer]) => {
      const content = contentOf(question, takes);
      const asked = typeof content === 'string' ? { user: content } : { user: promptOf(content), parts: content };
      return { ...asked, answer: answer.content, tokens: [] };
    });
    return { ...none, turns };
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
      const code = codeOf(error);
      const smaller =
        code === 'limit' && after(error) === 'failed'
          ? await this.#smaller(undefined, this.#work.signal)
          : code === 'context_full'
            ? await this.#longer(error, this.#work.signal)
            : [];
      if (signal !== this.#work.signal && !signal.aborted) return;
      this.#become(after(error));
      this.events.failed(error, smaller);
      if (this.#state !== 'failed' || !this.downloaded || code !== 'io') return;
      globalThis.addEventListener('online', () => void this.retry(), { once: true, signal: this.#work.signal });
    }
  }
}

/** @throws SplitkvError `usage` for what isn't questions and answers by turns */
export function checkMessages(messages: readonly ShownMessage[], from = 0): readonly ShownMessage[] {
  const wrong = (message: ShownMessage | null | undefined, index: number): boolean =>
    typeof message !== 'object' ||
    message === null ||
    message.role !== ((from + index) % 2 === 0 ? 'user' : 'assistant') ||
    typeof message.content !== 'string' ||
    (message.reasoning !== undefined && typeof message.reasoning !== 'string') ||
    (message.attached !== undefined && !(Array.isArray(message.attached) && message.attached.every(isAttached)));
  if (!Array.isArray(messages) || messages.length % 2 !== from % 2 || messages.some(wrong)) {
    throw usageError(
      "messages: expected a list of { role: 'user', content } and { role: 'assistant', content } by turns, ending with an answer; " +
        'the system message is the attribute `system`',
    );
  }
  return messages.map(({ role, content, reasoning, steps, cut, attached, versions }, index) => ({
    role,
    content,
    ...(reasoning && { reasoning }),
    ...(Array.isArray(steps) && { steps }),
    ...(cut === true && { cut }),
    ...(attached && { attached }),
    ...(versions && { versions: checkVersions(versions, from + index) }),
  }));
}

/** @param from the place of the message that has them @throws SplitkvError `usage` */
function checkVersions({ at, others }: Versions, from: number): Versions {
  const isPlace = Array.isArray(others) && Number.isInteger(at) && at >= 0 && at <= others.length;
  if (!isPlace || others.some((other) => other?.length === 0)) {
    throw usageError('messages: expected `versions` to be { at, others }, the place among them and lists of messages');
  }
  return { at, others: others.map((other) => checkMessages(other, from % 2)) };
}

/** For another message in the place of this one: all that there is from it on is beside that, which comes last. */
export function versionsWith(messages: readonly ShownMessage[], from: number): Versions | undefined {
  const [first, ...rest] = messages.slice(from);
  if (!first) return undefined;
  const { versions: { at, others } = { at: 0, others: [] }, ...own } = first;
  return { at: others.length + 1, others: others.toSpliced(at, 0, [own, ...rest]) };
}

/** The messages with another version of one of them, and what followed that. */
export function withVersion(messages: readonly ShownMessage[], from: number, at: number): readonly ShownMessage[] {
  const { others: all } = versionsWith(messages, from) ?? { others: [] };
  const [first, ...rest] = all[at] ?? [];
  if (!first) return messages;
  // New ones, for tabs that were told the old ones are gone.
  const followed = rest.map((message) => ({ ...message }));
  return [...messages.slice(0, from), { ...first, versions: { at, others: all.toSpliced(at, 1) } }, ...followed];
}

/** Questions with their answers. */
export const turnsOf = (
  messages: readonly ShownMessage[],
): (readonly [question: ShownMessage, answer: ShownMessage])[] =>
  messages.flatMap((answer, at) => {
    const question = at % 2 === 1 ? messages[at - 1] : undefined;
    return question ? [[question, answer]] : [];
  });

/** A whole number below 2 ** 32. */
export const randomNumber = (): number => crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;

/** Runs something that should go on while the tab is hidden: browsers freeze hidden tabs after some minutes, but none that holds a lock. */
async function inBackgroundToo<T>(work: () => Promise<T>): Promise<T> {
  const release = await holdLock(navigator.locks, `splitkv-chat-${randomNumber()}`, undefined, 'a lock');
  return work().finally(release);
}
