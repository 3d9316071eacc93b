/**
 * Room: what a chat looks like: its nodes (here), the log of messages, Markdown, the settings' sheet, what is told before a
 * download, style. Nothing here knows of models. Read log.ts next.
 */

import { make, pair } from '../../shared/dom.js';
import type { Explanation, Remedy } from '../explain.js';
import { icon, type IconName } from './icons.js';
import { type AnswerView, Log, type LogHost } from './log.js';
import type { Preview } from './preview.js';
import { STYLE } from './style.js';

/** What a person does in a chat. */
export interface PartsHost extends LogHost {
  send(text: string): void;
  stop(): void;
  clear(): void;
  start(): void;
  remedy(remedy: Remedy): void;
  openSettings(): void;
  openPicker(): void;
  chosen(files: readonly File[]): void;
  /** What was dropped on the chat. */
  dropped(entries: readonly (FileSystemEntry | File)[]): void;
}

/** An answer of before. */
export interface ShownAnswer {
  readonly content: string;
  readonly reasoning?: string;
  readonly cut?: boolean;
  readonly steps?: readonly {
    readonly calls: readonly {
      readonly call: { readonly function: { readonly name: string } };
      readonly failed: boolean;
    }[];
  }[];
}

/** The nodes of a chat in its shadow tree. */
export class ChatParts {
  readonly name = make('h2', 'name');
  readonly status = make('p', 'status');
  readonly #details: HTMLButtonElement;
  readonly #facts = make('div', 'facts');
  readonly #settings: HTMLButtonElement;
  readonly #models: HTMLButtonElement;
  readonly #clear: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  readonly #send: HTMLButtonElement;
  readonly #down: HTMLButtonElement;
  readonly field = make('textarea', '');
  readonly #about = make('details', 'panel about');
  readonly #empty = make('section', 'panel choose');
  readonly #welcome = make('div', 'welcome');
  readonly #skeleton = make('div', 'skeleton', make('span', ''), make('span', ''), make('span', ''));
  readonly #preview = make('section', 'panel');
  readonly #loading = make('section', 'panel');
  readonly #progress = make('progress', '');
  readonly #progressText = make('p', 'note');
  readonly #problem = make('section', 'panel problem');
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
    this.#details = this.#iconButton('details');
    this.#settings = this.#iconButton('settings');
    this.#models = this.#iconButton('models');
    this.#clear = this.#iconButton('new');
    this.#send = this.#iconButton('send');
    this.#stop = this.#iconButton('stop');
    this.#down = this.#iconButton('down');
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
    this.#loading.append(this.#progress, this.#progressText);
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
    this.#send.type = 'submit';
    this.#send.classList.add('main');
    this.#stop.classList.add('main');
    const composer = make('div', 'composer', this.#label, this.field, this.#send, this.#stop);
    const form = make('form', 'ask', composer);
    const header = make('header', '', this.name, this.status, this.#details, this.#models, this.#settings, this.#clear);
    this.#facts.id = 'facts';
    this.#details.setAttribute('aria-controls', 'facts');
    this.#down.classList.add('down');
    this.#chat.append(header, this.#facts, this.#body, this.#down, form);
    // Pages whose policy forbids <style> elements allow this.
    const style = new CSSStyleSheet();
    style.replaceSync(STYLE);
    root.adoptedStyleSheets = [style];
    root.append(this.frame);
    for (const part of [
      this.#about,
      this.#empty,
      this.#welcome,
      this.#skeleton,
      this.#preview,
      this.#loading,
      this.#problem,
      this.#stop,
      this.#clear,
      this.#facts,
      this.#details,
      this.#settings,
      this.#models,
      this.#down,
    ]) {
      part.hidden = true;
    }
    this.#listen(form);
    this.showTexts();
  }

  #iconButton(name: IconName): HTMLButtonElement {
    const button = make('button', 'icon-button', icon(name));
    button.type = 'button';
    return button;
  }

  /** Names everything by the chat's texts. */
  showTexts(): void {
    const { text } = this.on;
    const name = (node: HTMLElement, as: string): void => {
      node.ariaLabel = as;
      if (node instanceof HTMLButtonElement) node.title = as;
    };
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
    const choose = make('button', '', text('choose_model'));
    choose.type = 'button';
    choose.addEventListener('click', () => this.on.openPicker());
    this.#empty.replaceChildren(
      make('p', 'title', text('no_model')),
      make('p', '', text('no_model_advice')),
      make(
        'div',
        'actions',
        choose,
        pick(text('open_file'), (input) => Object.assign(input, { accept: '.gguf', multiple: true })),
        pick(text('open_folder'), (input) => Object.assign(input, { webkitdirectory: true })),
      ),
    );
  }

  #listen(form: HTMLFormElement): void {
    const send = (): void => {
      const text = this.field.value.trim();
      if (text === '' || this.#send.ariaDisabled === 'true') return;
      this.on.send(text);
    };
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      send();
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
    this.#stop.addEventListener('click', () => this.on.stop());
    this.#clear.addEventListener('click', () => {
      this.on.clear();
      this.field.focus(); // the button has gone
    });
    this.#details.addEventListener('click', () => this.#showFacts(this.#facts.hidden !== false));
    this.#settings.addEventListener('click', () => this.on.openSettings());
    this.#models.addEventListener('click', () => this.on.openPicker());
    this.#down.addEventListener('click', () => {
      this.#scroll();
      this.field.focus();
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
        const button = make('button', 'quiet', text);
        button.type = 'button';
        button.dir = 'auto';
        button.addEventListener('click', () => {
          if (this.#send.ariaDisabled !== 'true') this.on.send(text);
        });
        return button;
      }),
    );
    this.#showBeginning();
  }

  /** What is known of the loaded model; undefined: none is loaded. */
  /** @param privacy where what is typed goes */
  showFacts(facts: readonly (readonly [term: string, text: string])[] | undefined, privacy = ''): void {
    this.#details.hidden = facts === undefined;
    if (!facts) this.#showFacts(false);
    this.#facts.replaceChildren(facts ? list(facts) : '');
    const name = this.name.textContent ?? '';
    this.#welcome.replaceChildren(
      ...(facts ? [make('p', 'title', this.on.text('welcome', { name })), make('p', '', privacy)] : []),
    );
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

  /** @param canSend a message would be answered now @param busy something is under way that can be stopped */
  allow(canSend: boolean, busy: boolean): void {
    // Disabled buttons would lose the focus that a person has there.
    for (const button of [this.#send, ...this.#suggestions.children]) button.ariaDisabled = String(!canSend);
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
    const start = make('button', problem === undefined ? '' : 'quiet', preview.start ?? '');
    start.type = 'button';
    start.hidden = preview.start === undefined;
    start.addEventListener('click', () => this.on.start());
    this.#preview.replaceChildren(
      make('p', 'title', this.on.text(problem === undefined ? 'ready_to_load' : 'wont_fit')),
      list(preview.facts),
      ...(problem === undefined
        ? []
        : [make('details', '', make('summary', '', this.on.text('reported')), make('p', '', problem))]),
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
    const reported = make('details', '', make('summary', '', this.on.text('reported')), make('p', '', detail));
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

  #remedies(remedies: readonly Remedy[]): HTMLButtonElement[] {
    return remedies.map((remedy, index) => {
      const button = make('button', index === 0 ? '' : 'quiet', remedy.label);
      button.type = 'button';
      button.addEventListener('click', () => this.on.remedy(remedy));
      return button;
    });
  }

  addNote(text: string): void {
    this.log.addNote(text);
  }

  /** A question, and the answer that is to come. */
  begin(asked: string): void {
    this.#answer = this.log.add(asked);
    this.#showBeginning();
    this.#scroll();
  }

  /** A question and an answer of before. */
  show(asked: string, answer: ShownAnswer | undefined): void {
    const view = this.log.add(asked, answer !== undefined);
    if (answer?.reasoning) view?.finishThought(answer.reasoning);
    for (const { call, failed } of answer?.steps?.flatMap(({ calls }) => calls) ?? []) {
      view?.addCall(call.function.name)(failed);
    }
    view?.add(answer?.content ?? '');
    view?.end('', answer?.cut);
    this.#showBeginning();
    this.#scroll();
  }

  /** The last answer goes on. */
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
      if (this.field.value === '') this.field.value = this.log.asked(last) ?? '';
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
