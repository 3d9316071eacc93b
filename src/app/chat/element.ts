import { defined } from '../../base/options.js';
import { codeOf, messageOf, tried, usageError } from '../../base/errors.js';
import { formatBytes, grouped } from '../../base/math.js';
import { camel } from '../../base/names.js';
import type { GenerateOptions, LoadOptions, LoadProgress, Model, ModelInfo } from '../../index.js';
import { hubForm } from '../../loader/hub/hub_options.js';
import { mixtureText } from '../../model/weights/weight_types.js';
import { namedByDegrees } from '../../engine/planning/degrees.js';
import { type Attached, isUntaken } from './attached.js';
import { type Attribute, ATTRIBUTE_ROWS } from './chat_rows.js';
import { explain, type Remedy } from './explain.js';
import {
  adoptProperties,
  type ClusterAccess,
  type Highlight,
  type MathHook,
  type SplitkvChatEventMap,
  withProperties,
} from './properties.js';
import { type PageTools, toolsOf } from './page_tools.js';
import {
  type Answer,
  ChatSession,
  type ChatState,
  checkMessages,
  type SavedChat,
  type ShownMessage,
  turnsOf,
  versionsWith,
  withVersion,
} from './session.js';
import { keptText, mergeKept, readKept, sameTurns, TurnNames, type Kept } from './kept.js';
import { ATTRIBUTES, everyAdapter, misspelt, readSettings } from './settings.js';
import { type ChatStrings, sayOf, type StringName, STRINGS } from './strings.js';
import { ChatParts } from './view/parts.js';
import { ProgressMeter } from '../shared/progress.js';
import { clusterPreview, clusterText, lastPart, planText, previewOf, progressText, ranksText } from './view/preview.js';

const BUSY: readonly ChatState[] = ['looking', 'loading', 'answering'];
const HELP = 'https://github.com/splitkv/splitkv/blob/main/docs/chat.md#when-something-goes-wrong';

/** Pages that are also rendered on a server import the element there, too: it then does nothing. */
const Base = withProperties((globalThis as Partial<typeof globalThis>).HTMLElement ?? (class {} as typeof HTMLElement));
/** What may have been set before the element was defined. */
const SETTABLE = [
  ...Object.keys(ATTRIBUTES).map(camel),
  'files',
  'hubToken',
  'strings',
  'messages',
  'math',
  'responseFormat',
  'tools',
];

/**
 * A chat with a model that runs in the page: `<splitkv-chat model="https://example.com/models/small/" ranks="auto">`.
 *
 * Attributes: see ATTRIBUTES; each is a property, too (ChatProperties). Without `autostart` it tells size, memory, expected speed
 * and plan first, and asks before it downloads what this browser doesn't keep yet.
 *
 * Its events bubble out of shadow trees: see SplitkvChatEventMap.
 *
 * @example
 * ```ts
 * import 'splitkv/chat';
 *
 * const chat = document.createElement('splitkv-chat');
 * chat.model = 'smollm2-360m-instruct';
 * chat.tools = { time: { description: 'The time of day', run: () => new Date().toLocaleTimeString() } };
 * chat.addEventListener('splitkv-answer', ({ detail }) => console.log(detail.text));
 * document.body.append(chat);
 * ```
 */
export class SplitkvChat extends Base {
  static readonly observedAttributes: readonly string[] = Object.keys(ATTRIBUTES);

  readonly #session = new ChatSession({
    state: (state) => this.#showState(state),
    preview: (report, smaller) => {
      const preview = previewOf(report, this.#say, this.#session.options, smaller);
      const another = preview.problem === undefined ? [] : this.#anotherModel();
      this.#parts.showPreview({ ...preview, remedies: [...preview.remedies, ...another] });
      this.#tell('splitkv-preview', report);
    },
    asks: (options) => this.#parts.showPreview(clusterPreview(options, this.#say)),
    measuring: (what) => (this.#parts.status.textContent = `${what}…`),
    progress: (progress) => this.#showLoading(progress),
    loaded: (model) => {
      this.#parts.name.textContent = model.info.name;
      this.#tell('splitkv-ready', { model });
    },
    piece: (text) => {
      this.#parts.write((answer) => answer.add(text));
      this.#tell('splitkv-piece', { text });
    },
    thought: (text) => this.#parts.write((answer) => answer.addThought(text)),
    called: (name) => {
      let told = (_: boolean): void => {};
      this.#parts.write((answer) => (told = answer.addCall(name)));
      return (failed) => told(failed);
    },
    notice: (text) => {
      if (this.state === 'answering' || this.state === 'recovering') this.#notice = text;
      else this.#parts.log.addNote(text);
    },
    // After what else there was to know, such as which rank took its place.
    recovered: () => (this.#notice = `${this.#notice} ${this.#say('gpu_is_back')}`.trim()),
    failed: (error, smaller) => this.#fail(error, smaller),
  });
  readonly #parts: ChatParts;
  #meter = new ProgressMeter();
  #files: readonly File[] | undefined;
  #hubToken: string | undefined;
  #access: ClusterAccess | undefined;
  #strings: ChatStrings = STRINGS;
  #say = sayOf(STRINGS);
  #math: MathHook | undefined;
  #notice = '';
  /** What goes with the next question; files are still read until the promise resolves. */
  #attached: readonly Attached[] = [];
  #reading: Promise<void> = Promise.resolve();
  /** What is in the field is sent once the model is ready. */
  #waits = false;
  #turns = new TurnNames();
  /** What was kept before has been read: more that comes is another tab's. */
  #hasKept = false;
  #opening = false;
  #opened: string | readonly File[] | undefined;
  /** What the session was told to open has been closed, or there was nothing yet. */
  #closed = true;

  constructor() {
    super();
    const own = this as unknown as { readonly plain: boolean };
    this.#parts = new ChatParts(this.attachShadow({ mode: 'open' }), {
      text: (name, values) => this.#say(name, values),
      get plain() {
        return own.plain;
      },
      highlight: (text, language) => this.#hooked('highlight', () => this.highlight?.(text, language)),
      math: (tex, display) => this.#hooked('math', () => this.math?.(tex, display)),
      send: (text) => void this.#compose(text),
      resend: (turn, text) => void this.#send(text, this.#parts.log.asked(turn)?.attached, turn),
      continue: () => void this.continue(),
      regenerate: (turn) => void this.regenerate(turn),
      showVersion: (message, at) => this.#showVersion(message, at),
      stop: () => this.stop(),
      clear: () => this.#startAnew(),
      start: () => void this.start(),
      remedy: (remedy) => this.#remedy(remedy),
      openSettings: () => void this.#openSettings(),
      openPicker: () => void this.#openPicker(),
      chosen: (files) => (this.files = files),
      dropped: (entries) => void this.#dropped(entries),
      attach: (files) => void this.attach(files),
      recorded: (recording) => void this.#recorded(recording),
      edited: () => this.#edited(),
    });
    this.#showState('empty');
    adoptProperties(this, SETTABLE);
  }

  /** The loaded model, for whatever else a page wants of it. */
  get engine(): Model | undefined {
    return this.#session.model;
  }

  get state(): ChatState {
    return this.#session.state;
  }

  /** Questions and answers so far. What is set takes their place, and the model goes on from there; an answer being written ends. */
  get messages(): readonly ShownMessage[] {
    return this.#session.messages;
  }

  /** @throws SplitkvError `usage` for what isn't questions and answers by turns */
  set messages(messages: readonly ShownMessage[] | undefined) {
    const after = { messages: checkMessages(messages ?? []) };
    this.#turns.replace(this.#session, after);
    this.#restore(after);
    this.#keep();
  }

  /** Texts of one's own, by the names of `STRINGS`; the others stay. */
  get strings(): Partial<ChatStrings> {
    return this.#strings;
  }

  set strings(strings: Partial<ChatStrings> | undefined) {
    this.#strings = { ...STRINGS, ...strings };
    this.#say = sayOf(this.#strings);
    this.#parts.showTexts();
    this.#showLooks();
    this.#showStatus(this.state);
  }

  /** Colours code, e.g. by highlight.js: gives nodes to show, or undefined to leave it plain. Called once a block has ended. */
  declare highlight: Highlight | null | undefined;

  /** Shows maths, e.g. by Temml or KaTeX: gives a node for TeX, or undefined to leave it as it was written. */
  get math(): MathHook | undefined {
    return this.#math;
  }

  set math(math: MathHook | undefined) {
    const before = this.#math;
    this.#math = math ?? undefined;
    // What was kept is shown before a page's script comes.
    if (before !== this.#math && this.messages.length > 0 && !BUSY.includes(this.state)) this.#showMessages();
  }

  /** Tools that the model may call, by name; each has a function `run`, whose result the model is told. */
  get tools(): PageTools | undefined {
    return this.#session.tools;
  }

  /** @throws SplitkvError `usage` for a tool that can't be run */
  set tools(tools: PageTools | undefined) {
    if (tools) toolsOf(tools);
    this.#session.tools = tools ?? undefined;
  }

  /** The form that answers are to have: as the option of `generate`. */
  get responseFormat(): GenerateOptions['responseFormat'] {
    return this.#session.responseFormat;
  }

  set responseFormat(form: GenerateOptions['responseFormat']) {
    this.#session.responseFormat = form ?? undefined;
  }

  /** The files of a model folder, or a GGUF file, that somebody chose; they win over `model`. */
  get files(): readonly File[] | undefined {
    return this.#files;
  }

  set files(files: readonly File[] | undefined) {
    this.#files = files;
    this.#openSoon();
  }

  /**
   * An access token of the Hub, for gated and private models: a person's own, asked for in the page. It is no attribute, as
   * whoever reads a page's source would have it.
   */
  get hubToken(): string | undefined {
    return this.#hubToken;
  }

  set hubToken(token: string | null | undefined) {
    this.#hubToken = token ?? undefined;
    this.#openSoon();
  }

  /** The cluster whose ranks run the model; an object may have a token, and is no attribute. */
  override get cluster(): string | ClusterAccess | undefined {
    return this.#access ?? this.getAttribute('cluster') ?? undefined;
  }

  override set cluster(cluster: string | ClusterAccess | null | undefined) {
    // Templates make a new object each time.
    if (cluster && typeof cluster === 'object' && JSON.stringify(cluster) === JSON.stringify(this.#access)) return;
    const hadAccess = this.#access !== undefined;
    this.#access = typeof cluster === 'object' ? (cluster ?? undefined) : undefined;
    if (typeof cluster === 'string') this.setAttribute('cluster', cluster);
    else this.removeAttribute('cluster');
    if (hadAccess || this.#access) this.#openSoon();
  }

  override focus(options?: FocusOptions): void {
    this.#parts.field.focus(options);
  }

  /** Downloads and loads, where it waits to be asked. */
  start(): Promise<void> {
    this.#parts.showPreview(undefined);
    return this.#session.start();
  }

  /**
   * Asks the model. Resolves with the answer, or undefined where there was none.
   * @param attached texts, or pictures and recordings as `data:` URLs, that go with it
   */
  send(text: string, attached: readonly Attached[] = []): Promise<Answer | undefined> {
    this.#parts.field.value = '';
    this.#edited();
    return this.#send(text, attached);
  }

  /** Puts pictures, recordings and text files beside the field, to go with the next question. Resolves once they are read; what can't be taken is told. */
  attach(files: readonly File[]): Promise<void> {
    const read = async (): Promise<void> => {
      const { readAttached } = await import('./view/attachments.js');
      const { added, problems } = await readAttached(files, this.#attached, this.#say);
      this.#attached = [...this.#attached, ...added];
      this.#showAttached(problems.join(' '));
    };
    return (this.#reading = this.#reading.then(read).catch((error: unknown) => this.#fail(error)));
  }

  async #recorded(recording: Promise<File>): Promise<void> {
    try {
      await this.attach([await recording]);
    } catch (error) {
      this.#showAttached(this.#say('no_microphone', { why: messageOf(error) }));
    }
  }

  #showAttached(problem = ''): void {
    const name = this.#parts.name.textContent ?? '';
    const unseen = (what: 'images' | 'sounds'): boolean =>
      this.state === 'ready' &&
      isUntaken(this.#attached, { images: true, sounds: true, [what]: this.#session.takes[what] });
    const notes = [
      problem,
      unseen('images') ? this.#say('no_pictures', { name }) : '',
      unseen('sounds') ? this.#say('no_sound', { name }) : '',
      this.#waits ? this.#say('waits') : '',
    ];
    void this.#parts.showAttached(this.#attached, notes.filter((note) => note !== '').join(' '), (left) => {
      this.#attached = left;
      this.#showAttached();
    });
  }

  /** As a person sends: with what is beside the field, and once the model is ready. */
  async #compose(text: string): Promise<void> {
    await this.#reading;
    const isReady = this.state === 'ready';
    this.#waits = !isReady && this.state !== 'empty' && this.state !== 'failed';
    if (!isReady || isUntaken(this.#attached, this.#session.takes)) return this.#showAttached();
    const attached = this.#attached;
    this.#attached = [];
    this.#showAttached();
    const answer = await this.send(text, attached);
    if (answer || this.#parts.field.value !== text || this.#attached.length > 0) return;
    this.#attached = attached;
    this.#showAttached();
  }

  /** The field has another text. */
  #edited(): void {
    if (this.#waits) {
      this.#waits = false;
      this.#showAttached();
    }
    this.#draft(this.#parts.field.value);
  }

  /** Puts together what is shown and kept, with what was typed. */
  #keepHere(said = true): void {
    this.#keep(said);
    this.#parts.field.value ||= this.#draft();
  }

  /** What was typed and not sent is there after a reload; a tab has its own. @returns what there was @param text takes its place */
  #draft(text?: string): string {
    const at = this.#keptAt;
    try {
      if (at === undefined) return '';
      if (text) sessionStorage.setItem(at, text);
      else if (text === '') sessionStorage.removeItem(at);
      return sessionStorage.getItem(at) ?? '';
    } catch {
      return ''; // no room, or no storage for this page
    }
  }

  /** Another answer to a question, by default the last one; those after it are taken back. */
  regenerate(turn = this.#parts.log.turns - 1): Promise<Answer | undefined> {
    const asked = this.#parts.log.asked(turn);
    return asked === undefined ? Promise.resolve(undefined) : this.#send(asked.asked, asked.attached, turn, true);
  }

  /** The last answer goes on, where it was cut. Resolves with the whole of it; undefined where there is nothing to go on with. */
  async continue(): Promise<Answer | undefined> {
    const cut = this.messages.at(-1)?.cut;
    if (this.state !== 'ready' || !cut) return undefined;
    this.#parts.showProblem(undefined);
    this.#parts.goOn();
    this.#notice = '';
    const answer = await this.#session.continue();
    this.#ended(answer, cut);
    return answer;
  }

  /** @param cut where there is no answer: what there was of it can still go on */
  #ended(answer: Answer | undefined, cut = false): void {
    if (!answer) {
      this.#parts.end('', false, cut);
      this.#draft(this.#parts.field.value);
      return this.#keep(false);
    }
    this.#draft(this.#parts.field.value);
    const last = this.messages.at(-1);
    this.#parts.end(this.#noteOf(answer), true, last?.cut, last?.content);
    this.#tell('splitkv-answer', { text: answer.text, result: answer.result });
    this.#keep();
  }

  /** @param turn the turns before it stay @param another its answer is to be another one */
  async #send(
    text: string,
    attached: readonly Attached[] = [],
    turn = this.#session.turns,
    another = false,
  ): Promise<Answer | undefined> {
    if (this.#session.state !== 'ready') return undefined;
    this.#parts.showProblem(undefined);
    const { messages } = this;
    const versions = versionsWith(messages, turn * 2 + (another ? 1 : 0));
    this.#parts.cut(turn);
    this.#parts.begin(text, attached, another ? [messages[turn * 2]?.versions, versions] : [versions]);
    this.#draft(text); // until there is an answer to keep
    this.#notice = isUntaken(attached, this.#session.takes) ? this.#say('pictures_left_out') : '';
    const answer = await this.#session.send(text, turn, another, attached);
    this.#ended(answer);
    // What was taken back for it is there again.
    if (!answer && turn < this.#session.turns) this.#showMessages();
    return answer;
  }

  /** The conversation as a text: Markdown, or JSON that `messages` takes. */
  export(kind: 'markdown' | 'json' = 'markdown'): string {
    const { messages } = this;
    if (kind === 'json') return JSON.stringify(messages, undefined, 2);
    return messages
      .map(({ role, content, attached = [] }) => {
        const said = [...attached.map(({ name }) => `[${name}]`), content].join(' ');
        return `**${this.#say(role === 'user' ? 'question' : 'answer')}**\n\n${said}\n`;
      })
      .join('\n');
  }

  /** Ends the answer or the download that is under way. */
  stop(): void {
    this.#session.stop();
  }

  /** As a person asks for it: a page may do it otherwise. */
  #startAnew(): void {
    if (this.#tell('splitkv-new', {}, true)) this.clear();
  }

  /** Begins a new conversation. */
  clear(): void {
    this.#session.clear();
    this.#parts.showProblem(undefined);
    this.#parts.cut(0);
    this.#keep();
  }

  connectedCallback(): void {
    for (const problem of misspelt(this.getAttributeNames())) console.warn(problem);
    this.#showLooks();
    addEventListener('storage', this.#heard);
    if (this.#closed) this.#openSoon();
  }

  /** Another document has no style of the first. */
  adoptedCallback(): void {
    this.#parts.dress();
  }

  disconnectedCallback(): void {
    // Moved within the page, it is connected again at once.
    queueMicrotask(() => {
      if (this.isConnected) return;
      this.#closed = true;
      removeEventListener('storage', this.#heard);
      this.#parts.hears(false);
      void this.#session.close();
    });
  }

  attributeChangedCallback(name: string, before: string | null, now: string | null): void {
    if (!this.isConnected || before === now) return;
    if (name === 'keep' && before !== null) {
      // Another conversation.
      this.#turns = new TurnNames();
      this.#hasKept = false;
      if (now !== null) this.#restore({ messages: [] });
      this.#parts.field.value = '';
      this.#waits = false;
    }
    const changes = ATTRIBUTE_ROWS[name as Attribute][1].changes;
    if (name === 'keep') this.#keepHere();
    else if (changes === 'looks') this.#showLooks();
    else if (changes === 'answers' && this.state !== 'failed') this.#adjust();
    else this.#openSoon();
  }

  #adjust(): void {
    this.#showLooks();
    try {
      this.#session.adjust(readSettings((name) => this.getAttribute(name)));
    } catch (error) {
      void this.#session.refuse(error);
    }
  }

  /** Once for all attributes that a script sets in a row. */
  #openSoon(): void {
    if (this.#opening) return;
    this.#opening = true;
    queueMicrotask(() => {
      this.#opening = false;
      if (this.isConnected) this.#open();
    });
  }

  #open(): void {
    this.#closed = false;
    this.#parts.showPreview(undefined);
    this.#parts.showProblem(undefined);
    this.#showLooks();
    this.#restore(this.#session.save());
    this.#keepHere(false);
    try {
      const settings = readSettings((name) => this.getAttribute(name));
      const address = this.getAttribute('model')?.trim() ?? '';
      if (address === '' && !this.#files) {
        this.#parts.name.textContent = this.getAttribute('label') ?? this.#say('label');
        return void this.#session.close();
      }
      const where = this.#files ?? modelAt(address);
      // Another model begins anew; the same one with other options goes on. What is kept isn't this tab's alone.
      const isOther = this.#opened !== undefined && this.#opened !== (this.#files ?? address);
      if (isOther && this.#keptAt === undefined) this.clear();
      this.#opened = this.#files ?? address;
      this.#parts.name.textContent = nameOf(where);
      const load = {
        ...settings.load,
        ...(this.#access && { cluster: { ...defined({ name: this.getAttribute('cluster-name') }), ...this.#access } }),
        ...(this.#hubToken !== undefined && { hubToken: this.#hubToken }),
      };
      void this.#session.open(where, { ...settings, load });
    } catch (error) {
      void this.#session.refuse(error);
    }
  }

  /** What a page's function makes of it; what it throws changes nothing. */
  #hooked(name: string, make: () => Node | undefined): Node | undefined {
    try {
      return make() ?? undefined;
    } catch (error) {
      console.error(`<splitkv-chat> ${name}:`, error);
      return undefined;
    }
  }

  #showLooks(): void {
    const suggestions = (this.getAttribute('suggestions') ?? '').split('|').map((text) => text.trim());
    this.#parts.describe({
      label: this.getAttribute('label') ?? this.#say('label'),
      placeholder: this.getAttribute('placeholder') ?? this.#say('placeholder'),
      about: this.getAttribute('about') ?? undefined,
      suggestions: suggestions.filter((text) => text !== ''),
      settings: this.hasAttribute('settings'),
      picker: this.hasAttribute('picker'),
    });
    this.#allow();
  }

  #allow(state = this.state): void {
    this.#parts.allow(state === 'ready', BUSY.includes(state), state !== 'empty' && state !== 'failed');
  }

  #showState(state: ChatState): void {
    if (state === 'loading') this.#meter = new ProgressMeter();
    if (state !== 'asking' && state !== 'looking') this.#parts.showPreview(undefined);
    if (state !== 'failed') this.#parts.showProblem(undefined);
    if (state !== 'loading') this.#parts.showProgress(undefined);
    if (!this.engine || state === 'empty') this.#parts.showFacts(undefined);
    // Again after a recovery: other ranks may have come.
    else if (state === 'ready') this.#parts.showFacts(this.#facts(this.engine.info), this.#privacy());
    this.#parts.showWaiting(state === 'empty', state === 'looking' || state === 'checking');
    this.#showStatus(state);
    this.#allow(state);
    const { takes } = this.#session;
    this.#parts.frame.classList.toggle('sees', state !== 'ready' || takes.images);
    this.#parts.hears(state !== 'empty' && takes.sounds);
    if (state === 'failed' || state === 'empty') this.#waits = false;
    this.#showAttached();
    // After the end of the answer before it.
    if (state === 'ready') setTimeout(() => this.#waits && void this.#compose(this.#parts.field.value.trim()));
    this.#tell('splitkv-state', { state });
  }

  #showStatus(state: ChatState): void {
    this.#parts.status.textContent = this.#say(`state_${state}`);
  }

  #showLoading(progress: LoadProgress): void {
    const { phase, loadedBytes, totalBytes, kernelsCompiled, kernelsTotal, waiting } = progress;
    this.#meter.add({ done: loadedBytes }, performance.now());
    let text = this.#say('first_files', { loaded: loadedBytes > 0 ? formatBytes(loadedBytes) : '' });
    if (phase === 'weights' || phase === 'download') {
      text = progressText(loadedBytes, totalBytes, waiting ? undefined : this.#meter.rate, this.#say);
      const percent = totalBytes > 0 ? Math.floor((loadedBytes / totalBytes) * 100) : 0;
      this.#parts.status.textContent = this.#say('state_percent', { percent });
    }
    if (phase === 'profile') text = `${progress.what ?? ''}…`;
    if (phase === 'kernels') text = this.#say('preparing', { done: kernelsCompiled, total: kernelsTotal });
    if (waiting) text += `; ${this.#say(navigator.onLine ? 'progress_waits' : 'progress_offline')}`;
    this.#parts.showProgress({ text, loaded: loadedBytes, total: totalBytes });
    this.#tell('splitkv-progress', progress);
  }

  #facts(info: ModelInfo): [string, string][] {
    const adapter = ranksText(info.ranks);
    const { worldSize, policy } = info.plan;
    return [
      [this.#say('fact_weights'), `${mixtureText(info.weightTypes)}, ${formatBytes(info.weightBytes)}`],
      [this.#say('fact_adapter'), info.adapter.software ? this.#say('fact_adapter_cpu', { adapter }) : adapter],
      [this.#say('fact_plan'), planText(policy, worldSize, this.#say)],
      [this.#say('fact_context'), this.#say('fact_tokens', { tokens: grouped(info.contextLength) })],
    ];
  }

  /** Where what is typed goes. */
  #privacy(): string {
    const { cluster } = this.#session.options;
    return cluster ? this.#say('private_cluster', { cluster: clusterText(cluster) }) : this.#say('private');
  }

  #noteOf({ result }: Answer): string {
    const { stats, finish_detail: end } = result;
    const ends: Partial<Record<typeof end, StringName>> = {
      max_tokens: 'cut_at_limit',
      context_full: 'cut_context_full',
      aborted: 'stopped',
    };
    const cut = ends[end];
    const speed = this.#say('speed', { rate: stats.tokens_per_second.toFixed(1) });
    const { drafted = 0, accepted = 0 } = stats.speculation ?? {};
    const drafts = drafted > 0 ? this.#say('drafts', { accepted: `${accepted}`, drafted: `${drafted}` }) : '';
    return [cut ? this.#say(cut) : '', speed, drafts, this.#notice].filter((part) => part !== '').join(' ');
  }

  /** @param from the turns before it are shown already */
  #showMessages(from = 0): void {
    this.#parts.cut(from);
    for (const [question, answer] of turnsOf(this.messages).slice(from)) this.#parts.show(question, answer);
    this.#allow();
  }

  #showVersion(message: number, at: number): void {
    this.#parts.showProblem(undefined);
    this.#session.restore({ messages: withVersion(this.messages, message, at) });
    this.#parts.stay();
    this.#showMessages(Math.floor(message / 2));
    this.#keep();
  }

  #restore(saved: SavedChat): void {
    this.#session.restore(saved);
    this.#showMessages();
  }

  /** Where the conversation is kept; undefined: nowhere. */
  get #keptAt(): string | undefined {
    const name = this.getAttribute('keep');
    return name === null ? undefined : `splitkv-chat:${name}`;
  }

  /**
   * Puts what is shown and what is kept together, which another tab may have changed meanwhile: nothing that either said is lost. An
   * answer that is being written comes first.
   */
  #keep(said = true): void {
    const at = this.#keptAt;
    this.#session.keepsKv = at !== undefined;
    if (at === undefined || this.state === 'answering' || this.state === 'recovering') return;
    try {
      const text = localStorage.getItem(at);
      // Of what something else has written there is nothing.
      const there = tried(() => readKept(text ?? '')) ?? { messages: [] };
      const mine = this.#turns.of(this.#session.save());
      const all = mergeKept(mine, there);
      // Two tabs that hear of each other would otherwise write on and on.
      if (said || !sameTurns(all, there)) {
        if (all.messages.length === 0) localStorage.removeItem(at);
        else this.#store(at, all);
      }
      this.#turns.take(all, this.#hasKept);
      this.#hasKept = true;
      if (all.messages !== mine.messages) this.#restore(all);
    } catch (error) {
      console.warn('<splitkv-chat> keeps nothing:', error); // no room, or no storage for this page
    }
  }

  /** Without pictures where there is no room for them. */
  #store(at: string, kept: Kept): void {
    try {
      localStorage.setItem(at, keptText(kept));
    } catch (error) {
      const less = keptText(kept, false);
      if (less === keptText(kept)) throw error;
      localStorage.setItem(at, less);
      this.#parts.log.addNote(this.#say('not_kept'));
    }
  }

  /** Another tab has changed what is kept. */
  readonly #heard = ({ key, newValue }: StorageEvent): void => {
    if (key !== null && key !== this.#keptAt) return;
    if (newValue === null) this.#turns.forget();
    this.#keep(false);
  };

  async #openSettings(): Promise<void> {
    const { openSheet } = await import('./view/sheet.js');
    openSheet(this.#parts.frame, {
      text: this.#say,
      read: (name) => this.getAttribute(name),
      usual: (name) => this.#usual(name),
      change: (name, value) => {
        if (value === null) this.removeAttribute(name);
        else this.setAttribute(name, value);
      },
      export: (kind) => this.#saveFile(kind),
    });
  }

  /** Where people may choose: a way on that doesn't need this model. */
  #anotherModel(): Remedy[] {
    return this.hasAttribute('picker') ? [{ label: this.#say('another_model'), action: 'models' }] : [];
  }

  async #openPicker(): Promise<void> {
    try {
      const { openPicker } = await import('./view/picker.js');
      openPicker(this.#parts.frame, {
        say: this.#say,
        fits: async () => {
          const { load } = readSettings((name) => this.getAttribute(name));
          if (this.cluster !== undefined) throw usageError(this.#say('cluster_fits'));
          const ranks = (await namedByDegrees(load)).ranks ?? (await everyAdapter());
          const { catalogFit } = await import('../../engine/planning/catalog_fit.js');
          return catalogFit({ ...load, ranks });
        },
        choose: (model) => {
          this.#files = undefined;
          this.setAttribute('model', model);
          this.#openSoon();
        },
      });
    } catch (error) {
      this.#fail(error);
    }
  }

  /** What holds where an attribute isn't given. */
  #usual(name: Attribute): string | undefined {
    const info = this.engine?.info;
    if (!info) return undefined;
    const [option, { default: preset }] = ATTRIBUTE_ROWS[name];
    const own: Readonly<Record<string, number | string | undefined>> = {
      ...(info.sampling as Readonly<Record<string, number>>),
      contextLength: info.contextLength,
      weights: info.weights,
    };
    const value = own[option] ?? preset;
    return value === undefined ? undefined : String(value);
  }

  #saveFile(kind: 'markdown' | 'json'): void {
    const type = kind === 'json' ? 'application/json' : 'text/markdown';
    const anchor = document.createElement('a');
    anchor.href = URL.createObjectURL(new Blob([this.export(kind)], { type }));
    anchor.download = kind === 'json' ? 'conversation.json' : 'conversation.md';
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
  }

  async #dropped(entries: readonly (FileSystemEntry | File)[]): Promise<void> {
    try {
      const { droppedFiles, isModel } = await import('./dropped.js');
      const files = await droppedFiles(entries);
      if (isModel(entries)) this.files = files;
      else await this.attach(files);
    } catch (error) {
      this.#fail(error);
    }
  }

  #remedy({ action, load }: Remedy): void {
    // It stays until there is another model.
    if (action === 'models') return void this.#openPicker();
    this.#parts.showProblem(undefined);
    // A question that had no room is asked again.
    if (action === 'retry' && this.state === 'ready') this.#waits = this.#parts.field.value.trim() !== '';
    if (action === 'retry') void this.#session.retry(load);
    else if (action === 'download') void this.#session.downloadAgain();
    else if (action === 'recover') void this.#session.recover();
    else if (action === 'ignore') this.#session.ignore();
    else if (action === 'forget') {
      this.#session.forget = true;
      const text = this.#parts.field.value.trim();
      if (text !== '') void this.#compose(text);
    } else this.#startAnew();
  }

  #fail(error: unknown, smaller: readonly LoadOptions[] = []): void {
    const { options: load, downloaded, canForget } = this.#session;
    const explanation = explain(error, { load, downloaded, smaller, canForget }, this.#say);
    const another = this.state === 'failed' && !explanation.neutral ? this.#anotherModel() : [];
    this.#parts.showProblem({ ...explanation, remedies: [...explanation.remedies, ...another] });
    if (explanation.neutral && this.state === 'failed') this.#parts.status.textContent = explanation.title;
    const [code, message] = [codeOf(error), messageOf(error)];
    if (!explanation.neutral) console.error(`<splitkv-chat> ${code}: ${explanation.title}. See ${HELP}\n`, error);
    this.#tell('splitkv-error', { code, message });
  }

  #tell<K extends keyof SplitkvChatEventMap>(
    name: K,
    detail: SplitkvChatEventMap[K]['detail'],
    cancelable = false,
  ): boolean {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable }));
  }
}

// Frameworks set properties that an element has, and otherwise attributes.
SplitkvChat.prototype.highlight = undefined;

/** A URL, or what may be a model's name, which is the library's to read. @throws SplitkvError `usage` */
function modelAt(address: string): string | URL {
  if (address.startsWith('cluster:') || hubForm(address) !== undefined) return address;
  if (!URL.canParse(address, document.baseURI)) {
    throw usageError(`model="${address}" is no URL of a model folder or .gguf file`);
  }
  const url = new URL(address, document.baseURI);
  if (!url.pathname.endsWith('/') && !url.pathname.endsWith('.gguf')) url.pathname += '/';
  return url;
}

function nameOf(where: string | URL | readonly File[]): string {
  if (typeof where === 'string') return where.replace(/^(hf|cluster):/i, '');
  if (!(where instanceof URL)) return where[0]?.webkitRelativePath.split('/')[0] || where[0]?.name || 'files';
  return lastPart(where);
}
