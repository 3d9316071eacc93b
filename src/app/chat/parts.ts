import { make, pair } from '../shared/dom.js';
import type { Explanation, Remedy } from './explain.js';
import type { Preview } from './preview.js';
import { STYLE } from './style.js';

/** The nodes of a chat in its shadow tree. They know nothing of models. */
export class ChatParts {
  readonly name = make('p', 'name');
  readonly status = make('p', 'status');
  readonly #stop = make('button', 'quiet', 'Stop');
  readonly #clear = make('button', 'quiet', 'New conversation');
  readonly #send = make('button', '', 'Send');
  readonly field = make('textarea', '');
  readonly #about = make('details', 'panel about', make('summary', '', 'The text that is asked about'));
  readonly #preview = make('section', 'panel');
  readonly #loading = make('section', 'panel');
  readonly #progress = make('progress', '');
  readonly #progressText = make('p', 'note');
  readonly #problem = make('section', 'panel problem');
  readonly #suggestions = make('div', 'suggestions');
  readonly #log = make('div', 'log');
  readonly #body = make('div', 'body');
  readonly #chat = make('section', 'chat');
  readonly #label = make('label', 'hidden');
  #answer: HTMLElement | undefined;

  constructor(
    root: ShadowRoot,
    private readonly on: {
      send(text: string): void;
      stop(): void;
      clear(): void;
      start(): void;
      remedy(remedy: Remedy): void;
    },
  ) {
    this.status.role = 'status';
    this.#log.role = 'log';
    this.#log.ariaLabel = 'Conversation';
    this.#problem.role = 'alert';
    this.#suggestions.role = 'group';
    this.#suggestions.ariaLabel = 'Questions to try';
    this.#preview.ariaLabel = 'Before the download';
    this.#progress.ariaLabel = 'Download';
    this.#loading.ariaLabel = 'Loading';
    // It scrolls, so that the keyboard must reach it.
    this.#body.tabIndex = 0;
    this.#body.role = 'region';
    this.#body.ariaLabel = 'Messages';
    for (const [name, node] of Object.entries({
      chat: this.#chat,
      log: this.#log,
      field: this.field,
      send: this.#send,
      stop: this.#stop,
    })) {
      node.part.add(name);
    }
    this.field.id = 'message';
    this.field.rows = 1;
    this.field.enterKeyHint = 'send';
    this.#label.htmlFor = this.field.id;
    this.#label.textContent = 'Message';
    this.#loading.append(this.#progress, this.#progressText);
    this.#body.append(this.#about, this.#preview, this.#loading, this.#log, this.#suggestions, this.#problem);
    this.#send.type = 'submit';
    const form = make('form', '', this.#label, this.field, this.#send, this.#stop);
    const header = make('header', '', this.name, this.status, this.#clear);
    this.#chat.append(header, this.#body, form);
    // Pages whose policy forbids <style> elements allow this.
    const style = new CSSStyleSheet();
    style.replaceSync(STYLE);
    root.adoptedStyleSheets = [style];
    root.append(this.#chat);
    for (const part of [this.#about, this.#preview, this.#loading, this.#problem, this.#stop, this.#clear])
      part.hidden = true;
    this.#listen(form);
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
      if (event.key !== 'Escape' || this.#stop.hidden) return;
      event.preventDefault();
      this.on.stop();
    });
    this.#stop.type = this.#clear.type = 'button';
    this.#stop.addEventListener('click', () => this.on.stop());
    this.#clear.addEventListener('click', () => {
      this.on.clear();
      this.field.focus(); // the button has gone
    });
  }

  describe(label: string, placeholder: string, about: string | undefined, suggestions: readonly string[]): void {
    this.#chat.ariaLabel = label;
    this.field.placeholder = placeholder;
    this.#about.hidden = about === undefined;
    this.#about.querySelector('p')?.remove();
    if (about !== undefined) this.#about.append(make('p', '', about));
    this.#suggestions.replaceChildren(
      ...suggestions.map((text) => {
        const button = make('button', 'quiet', text);
        button.type = 'button';
        button.addEventListener('click', () => {
          if (this.#send.ariaDisabled !== 'true') this.on.send(text);
        });
        return button;
      }),
    );
  }

  /** @param canSend a message would be answered now @param busy something is under way that can be stopped */
  allow(canSend: boolean, busy: boolean): void {
    // Disabled buttons would lose the focus that a person has there.
    for (const button of [this.#send, ...this.#suggestions.children]) button.ariaDisabled = String(!canSend);
    const active = (this.#chat.getRootNode() as ShadowRoot).activeElement;
    this.#stop.hidden = !busy;
    this.#send.hidden = busy;
    if (busy && active === this.#send) this.#stop.focus();
    if (!busy && active === this.#stop) this.field.focus();
  }

  showPreview(preview: Preview | undefined): void {
    this.#preview.hidden = preview === undefined;
    if (!preview) return this.#preview.replaceChildren();
    const start = make('button', '', preview.problem === undefined ? preview.start : `${preview.start} all the same`);
    start.type = 'button';
    start.addEventListener('click', () => this.on.start());
    this.#preview.replaceChildren(
      make('p', 'title', preview.problem === undefined ? 'Ready to load' : "This model won't fit"),
      make('dl', '', ...preview.facts.flatMap(([term, text]) => [...pair(term, text).children])),
      ...(preview.problem === undefined ? [] : [make('p', '', preview.problem)]),
      make('div', 'actions', start),
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
    const { title, advice, detail, address, neutral = false, remedies } = explanation;
    this.#problem.role = neutral ? 'group' : 'alert';
    this.#problem.classList.toggle('problem', !neutral);
    const buttons = remedies.map((remedy, index) => {
      const button = make('button', index === 0 ? '' : 'quiet', remedy.label);
      button.type = 'button';
      button.addEventListener('click', () => this.on.remedy(remedy));
      return button;
    });
    this.#problem.replaceChildren(
      make('p', 'title', title),
      make('p', '', advice),
      ...(address === undefined ? [] : [make('p', 'note', address)]),
      make('details', '', make('summary', '', 'What was reported'), make('p', '', detail)),
      make('div', 'actions', ...buttons),
    );
    this.#scroll();
  }

  addNote(text: string): void {
    this.#log.append(make('p', 'note', text));
  }

  addQuestion(text: string): void {
    this.#log.append(this.#message('user', 'You', text));
    this.#clear.hidden = false;
    this.#suggestions.hidden = true;
    this.#scroll();
  }

  beginAnswer(): void {
    this.#answer = this.#message('assistant', 'Answer', '');
    this.#answer.ariaBusy = 'true'; // screen readers wait for the whole of it
    this.#log.append(this.#answer);
    this.#scroll();
  }

  addPiece(text: string): void {
    const near = this.#isAtEnd();
    this.#answer?.append(this.#answer.dataset['begun'] === undefined ? text.trimStart() : text);
    if (text.trim() !== '' && this.#answer) this.#answer.dataset['begun'] = '';
    if (near) this.#scroll();
  }

  /** @param note below the answer @param kept false takes an answer away that never began */
  endAnswer(note: string, kept = true): void {
    const answer = this.#answer;
    this.#answer = undefined;
    if (!answer) return;
    const near = this.#isAtEnd();
    answer.ariaBusy = 'false';
    if (!kept && answer.dataset['begun'] === undefined) answer.remove();
    else if (note !== '') answer.after(make('p', 'note', note));
    this.#suggestions.hidden = false;
    if (near) this.#scroll();
  }

  clearLog(): void {
    this.#log.replaceChildren();
    this.#answer = undefined;
    this.#clear.hidden = true;
    this.#suggestions.hidden = false;
  }

  #message(role: 'user' | 'assistant', who: string, text: string): HTMLElement {
    const message = make('article', `message ${role}`, text);
    message.part.add(role);
    message.ariaLabel = who;
    return message;
  }

  #isAtEnd(): boolean {
    const { scrollHeight, scrollTop, clientHeight } = this.#body;
    return scrollHeight - scrollTop - clientHeight < 40;
  }

  #scroll(): void {
    this.#body.scrollTop = this.#body.scrollHeight;
  }
}
