import { SplitkvError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import type { ChatMessage, Model } from '../../index.js';
import { hubForm } from '../../loader/hub/hub_form.js';
import type { SplitkvChatEventMap } from './events.js';
import { explain, type Remedy } from './explain.js';
import { ChatParts } from './parts.js';
import { adoptProperties, propertyName, withProperties } from './properties.js';
import { previewOf } from './preview.js';
import { ProgressMeter, progressText } from './progress_meter.js';
import { type Answer, ChatSession, type ChatState } from './session.js';
import { type Attribute, ATTRIBUTES, misspelt, readSettings } from './settings.js';

const STATUS: Readonly<Record<ChatState, string>> = {
  empty: 'No model',
  looking: 'Looking at the model and the GPU…',
  asking: 'Not loaded yet',
  loading: 'Loading…',
  checking: 'Checking that the GPU computes rightly…',
  ready: 'Ready',
  answering: 'Answering…',
  recovering: 'Bringing the GPU back…',
  failed: "That didn't work",
};
const BUSY: readonly ChatState[] = ['looking', 'loading', 'answering'];
/** Attributes that only change what is shown. */
const LOOKS: readonly string[] = ['label', 'placeholder', 'suggestions'] satisfies Attribute[];
/** Attributes that a loaded model needn't be loaded again for. */
const MANNERS: readonly string[] = [
  'autostart',
  'no-self-test',
  'max-tokens',
  'temperature',
  'top-p',
  'top-k',
  'seed',
  'system',
  'about',
] satisfies Attribute[];

/** Pages that are also rendered on a server import the element there, too: it then does nothing. */
const Base = withProperties((globalThis as Partial<typeof globalThis>).HTMLElement ?? (class {} as typeof HTMLElement));
/** What may have been set before the element was defined. */
const SETTABLE = [...Object.keys(ATTRIBUTES).map(propertyName), 'files', 'token'];

/**
 * A chat with a model that runs in the page: `<splitkv-chat model="https://example.com/models/small/" ranks="auto">`.
 *
 * Attributes: see ATTRIBUTES; each is a property, too (ChatProperties). Without `autostart` it tells size, memory, expected speed
 * and plan first, and asks before it downloads what this browser doesn't keep yet.
 *
 * Its events bubble out of shadow trees: see SplitkvChatEventMap.
 */
export class SplitkvChat extends Base {
  static readonly observedAttributes: readonly string[] = Object.keys(ATTRIBUTES);

  readonly #session = new ChatSession({
    state: (state) => this.#showState(state),
    preview: (report) => {
      this.#parts.showPreview(previewOf(report));
      this.#tell('splitkv-preview', report);
    },
    measuring: (what) => (this.#parts.status.textContent = `${what}…`),
    progress: (progress) => {
      const { phase, loadedBytes, totalBytes, kernelsCompiled, kernelsTotal } = progress;
      const pace = this.#meter.add(loadedBytes, totalBytes, performance.now());
      let text = 'The first files…';
      if (phase === 'weights' || phase === 'download') text = progressText(loadedBytes, totalBytes, pace);
      if (phase === 'kernels') text = `All is here. Preparing the GPU: ${kernelsCompiled} of ${kernelsTotal} kernels…`;
      this.#parts.showProgress({ text, loaded: loadedBytes, total: totalBytes });
      this.#tell('splitkv-progress', progress);
    },
    loaded: (model) => {
      this.#parts.name.textContent = model.info.name;
      this.#tell('splitkv-ready', { model });
    },
    piece: (text) => {
      this.#parts.addPiece(text);
      this.#tell('splitkv-piece', { text });
    },
    notice: (text) => {
      if (this.state === 'answering' || this.state === 'recovering') this.#notice = text;
      else this.#parts.addNote(text);
    },
    failed: (error) => this.#fail(error),
  });
  readonly #parts: ChatParts;
  #meter = new ProgressMeter();
  #files: readonly File[] | undefined;
  #token: string | undefined;
  #notice = '';
  #opening = false;
  /** What the session was told to open has been closed, or there was nothing yet. */
  #closed = true;

  constructor() {
    super();
    this.#parts = new ChatParts(this.attachShadow({ mode: 'open' }), {
      send: (text) => void this.send(text),
      stop: () => this.stop(),
      clear: () => this.clear(),
      start: () => void this.start(),
      remedy: (remedy) => this.#remedy(remedy),
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

  get messages(): readonly ChatMessage[] {
    return this.#session.messages;
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
  get token(): string | undefined {
    return this.#token;
  }

  set token(token: string | undefined) {
    this.#token = token ?? undefined;
    this.#openSoon();
  }

  override focus(options?: FocusOptions): void {
    this.#parts.field.focus(options);
  }

  /** Downloads and loads, where it waits to be asked. */
  start(): Promise<void> {
    this.#parts.showPreview(undefined);
    return this.#session.start();
  }

  /** Asks the model. Resolves with the answer, or undefined where there was none. */
  async send(text: string): Promise<Answer | undefined> {
    if (this.#session.state !== 'ready') return undefined;
    this.#parts.showProblem(undefined);
    this.#parts.field.value = '';
    this.#parts.addQuestion(text);
    this.#parts.beginAnswer();
    this.#notice = '';
    const answer = await this.#session.send(text);
    this.#parts.endAnswer(answer ? this.#noteOf(answer) : '', answer !== undefined);
    if (answer) this.#tell('splitkv-answer', { text: answer.text, result: answer.result });
    return answer;
  }

  /** Ends the answer or the download that is under way. */
  stop(): void {
    this.#session.stop();
  }

  /** Begins a new conversation. */
  clear(): void {
    this.#session.clear();
    this.#parts.showProblem(undefined);
    this.#parts.clearLog();
  }

  connectedCallback(): void {
    for (const problem of misspelt(this.getAttributeNames())) console.warn(problem);
    this.#showLooks();
    if (this.#closed) this.#openSoon();
  }

  disconnectedCallback(): void {
    // Moved within the page, it is connected again at once.
    queueMicrotask(() => {
      if (this.isConnected) return;
      this.#closed = true;
      void this.#session.close();
    });
  }

  attributeChangedCallback(name: string, before: string | null, now: string | null): void {
    if (!this.isConnected || before === now) return;
    if (LOOKS.includes(name)) this.#showLooks();
    else if (MANNERS.includes(name) && this.state !== 'failed') this.#adjust();
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
    this.#parts.clearLog();
    this.#showLooks();
    try {
      const settings = readSettings((name) => this.getAttribute(name));
      const address = this.getAttribute('model')?.trim() ?? '';
      if (address === '' && !this.#files) {
        this.#parts.name.textContent = 'No model';
        return void this.#session.close();
      }
      const where = this.#files ?? modelAt(address);
      this.#parts.name.textContent = nameOf(where);
      const load = this.#token === undefined ? settings.load : { ...settings.load, token: this.#token };
      void this.#session.open(where, { ...settings, load });
    } catch (error) {
      void this.#session.refuse(error);
    }
  }

  #showLooks(): void {
    const suggestions = (this.getAttribute('suggestions') ?? '').split('|').map((text) => text.trim());
    this.#parts.describe(
      this.getAttribute('label') ?? 'Chat',
      this.getAttribute('placeholder') ?? 'Ask something',
      this.getAttribute('about') ?? undefined,
      suggestions.filter((text) => text !== ''),
    );
    this.#parts.allow(this.state === 'ready', BUSY.includes(this.state));
  }

  #showState(state: ChatState): void {
    if (state === 'loading') this.#meter = new ProgressMeter();
    if (state !== 'asking' && state !== 'looking') this.#parts.showPreview(undefined);
    if (state !== 'failed') this.#parts.showProblem(undefined);
    if (state !== 'loading') this.#parts.showProgress(undefined);
    this.#parts.status.textContent = state === 'ready' ? this.#readyText() : STATUS[state];
    this.#parts.allow(state === 'ready', BUSY.includes(state));
    this.#tell('splitkv-state', { state });
  }

  #readyText(): string {
    const info = this.engine?.info;
    if (!info) return STATUS.ready;
    const adapters = [...new Set(info.ranks.map(({ adapter }) => adapter))].join(' + ');
    const slow = info.adapter.software ? ', which is the CPU, slowly' : '';
    const ranks = info.plan.worldSize === 1 ? '' : `, plan ${info.plan.policy} on ${info.plan.worldSize} ranks`;
    return `Ready: ${info.weights}, ${formatBytes(info.weightBytes)} on ${adapters}${slow}${ranks}`;
  }

  #noteOf({ result, hiddenSeconds }: Answer): string {
    const { stats, finish_detail: end } = result;
    const ends = {
      eos: '',
      stop_token: '',
      stop_string: '',
      max_tokens: 'Cut at the token limit.',
      context_full: 'Cut: the context is full. Begin a new conversation.',
      aborted: 'Stopped.',
    };
    const hidden =
      hiddenSeconds < 1
        ? ''
        : `The tab was in the background for ${hiddenSeconds.toFixed(0)} s; browsers slow such tabs down.`;
    const speed = `${stats.tokens_per_second.toFixed(1)} tokens/s`;
    return [ends[end], speed, hidden, this.#notice].filter((part) => part !== '').join(' ');
  }

  #remedy({ action, load }: Remedy): void {
    this.#parts.showProblem(undefined);
    if (action === 'retry') {
      this.#parts.clearLog();
      void this.#session.retry(load);
    } else if (action === 'download') {
      this.#parts.clearLog();
      void this.#session.downloadAgain();
    } else if (action === 'recover') void this.#session.recover();
    else if (action === 'ignore') this.#session.ignore();
    else this.clear();
  }

  #fail(error: unknown): void {
    const explanation = explain(error, this.#session.options, this.#session.downloaded);
    this.#parts.showProblem(explanation);
    if (explanation.neutral && this.state === 'failed') this.#parts.status.textContent = explanation.title;
    else if (!explanation.neutral) console.error('<splitkv-chat>', error);
    const { code, message } =
      error instanceof SplitkvError
        ? error
        : { code: 'internal' as const, message: error instanceof Error ? error.message : String(error) };
    this.#tell('splitkv-error', { code, message });
  }

  #tell<K extends keyof SplitkvChatEventMap>(name: K, detail: SplitkvChatEventMap[K]['detail']): void {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

/** A URL, or what may be a model's name, which is the library's to read. @throws SplitkvError `usage` */
function modelAt(address: string): string | URL {
  if (hubForm(address) !== undefined) return address;
  if (!URL.canParse(address, document.baseURI)) {
    throw new SplitkvError('usage', `model="${address}" is no URL of a model folder or .gguf file`);
  }
  const url = new URL(address, document.baseURI);
  if (!url.pathname.endsWith('/') && !url.pathname.endsWith('.gguf')) url.pathname += '/';
  return url;
}

function nameOf(where: string | URL | readonly File[]): string {
  if (typeof where === 'string') return where.replace(/^hf:/i, '');
  if (!(where instanceof URL)) return where[0]?.webkitRelativePath.split('/')[0] || where[0]?.name || 'files';
  return decodeURIComponent(where.pathname.split('/').filter(Boolean).at(-1) ?? where.host);
}
