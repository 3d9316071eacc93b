/**
 * Room: what a chat looks like: its nodes (here), the log of messages, Markdown, the settings' sheet, what is told before a
 * download, style. Nothing here knows of models. Read log.ts next.
 */

import { hidden, make, makeButton, name, pair } from '../../shared/dom.js';
import type { Attached } from '../attached.js';
import type { Explanation, Remedy } from '../explain.js';
import type { ShownMessage, Versions } from '../session.js';
import { icon, iconButton } from './icons.js';
import { type AnswerView, Log, type LogHost } from './log.js';
import type { Preview } from './preview.js';
import STYLE from './style.css?raw';

/** A longer text that is pasted goes along, and stays out of the field. */
const LONG_PASTE = 2000;
/** Of iPhones, whose own format pages can't read, these make JPEG. */
const ACCEPTED =
  'image/png,image/jpeg,image/webp,image/gif,audio/*,text/*,.md,.json,.csv,.tsv,.xml,.yaml,.yml,.toml,.log,.py,.js,.ts,.tsx,.jsx,.rs,.go,.c,.h,.cpp,.java,.rb,.php,.sh,.sql';

export interface PartsHost extends LogHost {
  send(text: string): void;
  stop(): void;
  clear(): void;
  start(): void;
  remedy(remedy: Remedy): void;
  openSettings(): void;
  openPicker(): void;
  chosen(files: readonly File[]): void;
  /** Files that are to go with the next question. */
  attach(files: readonly File[]): void;
  /** What the microphone heard is to go with it, too. */
  recorded(recording: Promise<File>): void;
  /** What is to be asked was changed. */
  edited(): void;
  dropped(entries: readonly (FileSystemEntry | File)[]): void;
}

/** The nodes of a chat in its shadow tree. */
export class ChatParts {
  readonly name = make('h2', 'name');
  readonly status = make('p', 'status');
  readonly #details = hidden(iconButton('details', () => this.#showFacts(this.#facts.hidden !== false)));
  readonly #facts = hidden(make('div', 'facts'));
  readonly #settings = hidden(iconButton('settings', () => this.on.openSettings()));
  readonly #models = hidden(iconButton('models', () => this.on.openPicker()));
  readonly #clear = hidden(iconButton('new', () => this.#focusAfter(() => this.on.clear())));
  readonly #stop = hidden(iconButton('stop', () => this.on.stop(), 'main'));
  readonly #send = make('button', 'icon-button main', icon('send'));
  readonly #attach = iconButton('attach', () => this.#pick());
  readonly #camera = iconButton('camera', () => this.#pick('environment'), 'camera');
  readonly #microphone = iconButton('microphone', () => void this.#record(), 'microphone');
  /** Ends what is being recorded. */
  #recording: AbortController | undefined;
  readonly #tray = hidden(make('div', 'tray'));
  readonly #down = hidden(iconButton('down', () => this.#focusAfter(() => this.#scroll()), 'down'));
  readonly field = make('textarea', '');
  readonly #about = hidden(make('details', 'panel about'));
  readonly #empty = hidden(make('section', 'panel choose'));
  readonly #welcome = hidden(make('div', 'welcome'));
  readonly #skeleton = hidden(make('div', 'skeleton', make('span', ''), make('span', ''), make('span', '')));
  readonly #preview = hidden(make('section', 'panel'));
  readonly #progress = make('progress', '');
  readonly #progressText = make('p', 'note');
  readonly #loading = hidden(make('section', 'panel', this.#progress, this.#progressText));
  readonly #problem = hidden(make('section', 'panel problem'));
  readonly #suggestions = make('div', 'suggestions');
  readonly log: Log;
  readonly #body = make('div', 'body');
  readonly #chat = make('section', 'chat');
  /** All there is in the shadow tree: dialogs, too. */
  readonly frame = make('div', 'frame', make('div', 'width', make('canvas', '')), this.#chat);
  readonly #label = make('label', 'hidden');
  #answer: AnswerView | undefined;
  #ready = false;
  #atEnd = true;

  constructor(
    private readonly root: ShadowRoot,
    private readonly on: PartsHost,
  ) {
    this.log = new Log(on);
    this.status.role = 'status';
    this.#problem.role = 'alert';
    this.#suggestions.role = 'group';
    // It scrolls, so that the keyboard must reach it.
    this.#body.tabIndex = 0;
    this.#body.role = 'region';
    for (const [name, node] of Object.entries({
      chat: this.#chat,
      log: this.log.node,
      field: this.field,
      send: this.#send,
      stop: this.#stop,
    })) {
      node.part.add(name);
    }
    this.field.id = 'message';
    this.field.dir = 'auto';
    this.field.rows = 1;
    this.field.enterKeyHint = 'send';
    this.#label.htmlFor = this.field.id;
    const inner = make(
      'div',
      'measure',
      this.#about,
      this.#empty,
      this.#skeleton,
      this.#preview,
      this.#loading,
      this.#welcome,
      this.log.node,
      this.#suggestions,
      this.#problem,
    );
    this.#body.append(inner);
    this.#tray.ariaLive = 'polite';
    const buttons = [this.#attach, this.#camera, this.#microphone, this.field, this.#send, this.#stop];
    const composer = make('div', 'composer', this.#label, this.#tray, ...buttons);
    const form = make('form', 'ask', composer);
    const header = make('header', '', this.name, this.status, this.#details, this.#models, this.#settings, this.#clear);
    this.#facts.id = 'facts';
    this.#details.setAttribute('aria-controls', 'facts');
    this.#chat.append(header, this.#facts, this.#body, this.#down, form);
    this.dress();
    root.append(this.frame);
    this.#listen(form);
    this.showTexts();
  }

  /** Takes the style, of its document's own: another document, such as a picture-in-picture window's, takes no other. */
  dress({ defaultView } = this.root.ownerDocument): void {
    if (!defaultView) return; // shows nothing
    // Pages whose policy forbids <style> elements allow this.
    const style = new defaultView.CSSStyleSheet();
    style.replaceSync(STYLE);
    this.root.adoptedStyleSheets = [style];
  }

  /** For buttons that go when they are pressed. */
  #focusAfter(act: () => void): void {
    act();
    this.field.focus();
  }

  showTexts(): void {
    const { text } = this.on;
    name(this.log.node, text('conversation'));
    name(this.#suggestions, text('questions'));
    name(this.#preview, text('before_download'));
    name(this.#progress, text('download'));
    name(this.#loading, text('download'));
    name(this.#body, text('messages'));
    name(this.#send, text('send'));
    name(this.#stop, text('stop'));
    name(this.#clear, text('new_conversation'));
    name(this.#settings, text('settings'));
    name(this.#models, text('change_model'));
    name(this.#details, text('details'));
    name(this.#facts, text('details'));
    name(this.#down, text('to_the_end'));
    name(this.#attach, text('attach'));
    name(this.#camera, text('take_picture'));
    name(this.#microphone, text('record'));
    this.#microphone.ariaPressed = 'false';
    this.#facts.role = 'group';
    this.#label.textContent = text('message');
    this.#fillEmpty();
  }

  #fillEmpty(): void {
    const { text } = this.on;
    const pick = (label: string, set: (input: HTMLInputElement) => unknown): HTMLElement => {
      const input = make('input', 'hidden');
      input.type = 'file';
      set(input);
      input.addEventListener('change', () => {
        if (input.files && input.files.length > 0) this.on.chosen([...input.files]);
        input.value = '';
      });
      return make('label', 'button quiet', label, input);
    };
    this.#empty.replaceChildren(
      make('p', 'title', text('no_model')),
      make('p', '', text('no_model_advice')),
      make(
        'div',
        'actions',
        makeButton('', text('choose_model'), () => this.on.openPicker()),
        pick(text('open_file'), (input) => Object.assign(input, { accept: '.gguf', multiple: true })),
        pick(text('open_folder'), (input) => Object.assign(input, { webkitdirectory: true })),
      ),
    );
  }

  #listen(form: HTMLFormElement): void {
    const send = (): void => {
      const text = this.field.value.trim();
      if (text !== '' || !this.#tray.hidden) this.on.send(text);
    };
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.#send.ariaDisabled !== 'true') send();
    });
    this.field.addEventListener('input', () => this.on.edited());
    this.field.addEventListener('paste', (event) => {
      const text = event.clipboardData?.getData('text/plain') ?? '';
      // What is copied from a document has a picture of itself with it; a file has its name.
      const files = [...(event.clipboardData?.files ?? [])].filter((file) => text === '' || text.trim() === file.name);
      if (text.length > LONG_PASTE) files.push(new File([text], `${this.on.text('pasted')}.txt`));
      if (files.length === 0) return;
      event.preventDefault();
      this.on.attach(files);
    });
    // Enter sends, Shift+Enter begins a line; not while an input method composes a word.
    this.field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    this.#chat.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      if (!this.#facts.hidden) this.#showFacts(false);
      else if (!this.#stop.hidden) this.on.stop();
      else return;
      event.preventDefault();
    });
    let top = 0;
    const scrolled = (): void => {
      // Whoever scrolls up leaves the end; a log that grows doesn't.
      const { scrollTop } = this.#body;
      if (this.#isAtEnd()) this.#atEnd = true;
      else if (scrollTop < top) this.#atEnd = false;
      top = scrollTop;
      this.#down.hidden = this.#atEnd;
    };
    this.#body.addEventListener('scroll', scrolled, { passive: true });
    // The body's size changes with the field's, and the log's with what is drawn later: what was at the end stays there.
    const resized = new ResizeObserver(() => {
      if (this.#atEnd && this.log.turns > 0) this.#scroll();
    });
    for (const node of [this.#body, this.log.node]) resized.observe(node);
    this.#chat.addEventListener('dragover', (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      this.#chat.classList.add('over');
    });
    this.#chat.addEventListener('dragleave', () => this.#chat.classList.remove('over'));
    this.#chat.addEventListener('drop', (event) => {
      this.#chat.classList.remove('over');
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      // The list is empty once the event is over.
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
      this.on.dropped(entries.filter((entry) => entry !== null));
    });
  }

  #showFacts(shown: boolean): void {
    this.#facts.hidden = !shown;
    this.#details.ariaExpanded = String(shown);
  }

  describe(looks: {
    readonly label: string;
    readonly placeholder: string;
    readonly about: string | undefined;
    readonly suggestions: readonly string[];
    readonly settings: boolean;
    readonly picker: boolean;
  }): void {
    this.#chat.ariaLabel = looks.label;
    this.field.placeholder = looks.placeholder;
    this.#settings.hidden = !looks.settings;
    this.#models.hidden = !looks.picker;
    this.#about.hidden = looks.about === undefined;
    this.#about.replaceChildren(make('summary', '', this.on.text('about')));
    if (looks.about !== undefined) this.#about.append(make('p', '', looks.about));
    this.#suggestions.replaceChildren(
      ...looks.suggestions.map((text) => {
        const button = makeButton('quiet', text, () => {
          this.field.value = text;
          this.on.send(text);
        });
        button.dir = 'auto';
        return button;
      }),
    );
    this.#showBeginning();
  }

  /** What is known of the loaded model; undefined: none is loaded. @param privacy where what is typed goes */
  showFacts(facts: readonly (readonly [term: string, text: string])[] | undefined, privacy = ''): void {
    this.#details.hidden = facts === undefined;
    if (!facts) this.#showFacts(false);
    this.#facts.replaceChildren(facts ? list(facts) : '');
    const welcome = this.on.text('welcome', { name: this.name.textContent ?? '' });
    this.#welcome.replaceChildren(...(facts ? [make('p', 'title', welcome), make('p', '', privacy)] : []));
    this.#ready = facts !== undefined;
    this.#showBeginning();
  }

  /** Shows the greeting and the suggestions before the first question only. */
  #showBeginning(): void {
    const before = this.log.turns === 0;
    this.#welcome.hidden = !before || !this.#ready;
    this.#suggestions.hidden = !before;
    this.#clear.hidden = before;
  }

  /**
   * @param canSend a message would be answered now @param busy something is under way that can be stopped
   * @param canWait a message would be answered later
   */
  allow(canSend: boolean, busy: boolean, canWait: boolean): void {
    // Disabled buttons would lose the focus that a person has there.
    this.#send.ariaDisabled = String(!canSend);
    for (const button of this.#suggestions.children) button.ariaDisabled = String(!canWait);
    const active = this.root.activeElement;
    this.#stop.hidden = !busy;
    this.#send.hidden = busy;
    if (busy && active === this.#send) this.#stop.focus();
    if (!busy && active === this.#stop) this.field.focus();
    this.log.allow(canSend);
  }

  /** @param none there is no model @param looking something comes */
  showWaiting(none: boolean, looking: boolean): void {
    this.#empty.hidden = !none;
    this.#skeleton.hidden = !looking;
  }

  showPreview(preview: Preview | undefined): void {
    this.#preview.hidden = preview === undefined;
    if (!preview) return this.#preview.replaceChildren();
    const { problem, remedies } = preview;
    const start = makeButton(problem === undefined ? '' : 'quiet', preview.start ?? '', () => this.on.start());
    start.hidden = preview.start === undefined;
    this.#preview.replaceChildren(
      make('p', 'title', this.on.text(problem === undefined ? 'ready_to_load' : 'wont_fit')),
      list(preview.facts),
      ...(problem === undefined ? [] : [this.#reported(problem)]),
      make('div', 'actions', ...this.#remedies(remedies), start),
    );
  }

  /** @param progress undefined hides it; bytes are left out while they aren't known */
  showProgress(progress: { readonly text: string; readonly loaded: number; readonly total: number } | undefined): void {
    this.#loading.hidden = progress === undefined;
    if (!progress) return;
    this.#progressText.textContent = progress.text;
    if (progress.total > 0) Object.assign(this.#progress, { max: progress.total, value: progress.loaded });
    else this.#progress.removeAttribute('value');
  }

  showProblem(explanation: Explanation | undefined): void {
    this.#problem.hidden = explanation === undefined;
    if (!explanation) return this.#problem.replaceChildren();
    const { title, advice, detail, address, isOpen = false, neutral = false, remedies } = explanation;
    const reported = this.#reported(detail);
    reported.open = isOpen;
    this.#problem.role = neutral ? 'group' : 'alert';
    this.#problem.classList.toggle('problem', !neutral);
    this.#problem.replaceChildren(
      make('p', 'title', title),
      make('p', '', advice),
      ...(address === undefined ? [] : [make('p', 'note', address)]),
      reported,
      make('div', 'actions', ...this.#remedies(remedies)),
    );
    this.#scroll();
  }

  #reported(text: string): HTMLDetailsElement {
    return make('details', '', make('summary', '', this.on.text('reported')), make('p', '', text));
  }

  #remedies(remedies: readonly Remedy[]): HTMLButtonElement[] {
    return remedies.map((remedy, index) =>
      makeButton(index === 0 ? '' : 'quiet', remedy.label, () => this.on.remedy(remedy)),
    );
  }

  /** @param capture from which camera; none where it is empty */
  #pick(capture = ''): void {
    const input = make('input', '');
    const isPhoto = capture !== '';
    Object.assign(input, { type: 'file', accept: isPhoto ? 'image/*' : ACCEPTED, multiple: !isPhoto });
    if (isPhoto) input.capture = capture;
    input.addEventListener('change', () => this.on.attach([...(input.files ?? [])]));
    input.click();
  }

  /** Whether there is a microphone's button. */
  hears(does: boolean): void {
    this.frame.classList.toggle('hears', does);
    if (!does) this.#recording?.abort();
  }

  /** Begins, or ends what was begun. */
  async #record(): Promise<void> {
    if (this.#recording) return this.#recording.abort();
    const { signal } = (this.#recording = new AbortController());
    this.#microphone.ariaPressed = 'true';
    const recording = import('./microphone.js').then(({ record }) => record(signal, this.on.text('recording')));
    this.on.recorded(recording);
    await recording.catch(() => {});
    this.#recording = undefined;
    this.#microphone.ariaPressed = 'false';
  }

  /** What goes with the next question. @param note what is to be known of it @param change takes what is left */
  async showAttached(
    attached: readonly Attached[],
    note: string,
    change: (left: readonly Attached[]) => void,
  ): Promise<void> {
    const remove = (one: Attached): void => {
      change(attached.filter((other) => other !== one));
      this.field.focus();
    };
    const nodes = note === '' ? [] : [make('p', 'note', note)];
    const list = attached.length > 0 && (await import('./attachments.js')).chips(attached, this.on.text, remove);
    this.#tray.replaceChildren(...(list ? [list] : []), ...nodes);
    this.#tray.hidden = !this.#tray.hasChildNodes();
  }

  /** A question, and the answer that is to come. @param versions of both */
  begin(asked: string, attached: readonly Attached[], versions: readonly (Versions | undefined)[]): void {
    this.#answer = this.log.add(asked, attached, versions);
    this.#showBeginning();
    this.#scroll();
  }

  /** A question and an answer of before. */
  show(question: ShownMessage, { content, reasoning, steps = [], cut, versions }: ShownMessage): void {
    const view = this.log.add(question.content, question.attached, [question.versions, versions]);
    if (reasoning) view.finishThought(reasoning);
    for (const { call, failed } of steps.flatMap(({ calls }) => calls)) view.addCall(call.function.name)(failed);
    view.add(content);
    view.end('', cut);
    this.#showBeginning();
    if (this.#atEnd) this.#scroll();
  }

  /** Where it is scrolled to stays, whatever comes. */
  stay(): void {
    this.#atEnd = false;
  }

  goOn(): void {
    this.#answer = this.log.answer;
    this.#answer?.begin();
    this.#scroll();
  }

  /** Changes the answer that is being written. */
  write(change: (answer: AnswerView) => void): void {
    if (!this.#answer) return;
    change(this.#answer);
    if (this.#atEnd) this.#scroll();
  }

  /**
   * @param note below the answer
   * @param kept false takes a turn away whose answer never began, and gives the question back
   * @param cut it can go on
   * @param text all of it
   */
  end(note: string, kept = true, cut = false, text?: string): void {
    const answer = this.#answer;
    this.#answer = undefined;
    if (!answer) return;
    answer.end(note, cut, text);
    if (!kept && !answer.begun) {
      const last = this.log.turns - 1;
      if (this.field.value === '') this.field.value = this.log.asked(last)?.asked ?? '';
      this.cut(last);
    }
    if (this.#atEnd) this.#scroll();
  }

  /** Keeps the first turns. */
  cut(turns: number): void {
    if (turns === 0) this.#answer = undefined;
    this.log.cut(turns);
    this.#showBeginning();
  }

  #isAtEnd(): boolean {
    const { scrollHeight, scrollTop, clientHeight } = this.#body;
    return scrollHeight - scrollTop - clientHeight < 40;
  }

  #scroll(): void {
    this.#atEnd = this.#down.hidden = true;
    this.#body.scrollTop = this.#body.scrollHeight;
  }
}

const list = (facts: readonly (readonly [term: string, text: string])[]): HTMLElement =>
  make('dl', '', ...facts.flatMap(([term, text]) => [...pair(term, text).children]));
