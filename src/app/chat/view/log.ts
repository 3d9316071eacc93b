import { parsed } from '../../../base/json.js';
import { make, makeButton, name } from '../../shared/dom.js';
import type { Say, StringName } from '../strings.js';
import type { Attached } from '../attached.js';
import type { Versions } from '../session.js';
import { type IconName, iconButton } from './icons.js';
import type { CodeParts, MarkdownView } from './markdown.js';

export interface LogHost {
  readonly text: Say;
  /** Answers are shown as they were written. */
  readonly plain: boolean;
  highlight(text: string, language: string): Node | undefined;
  math(tex: string, display: boolean): Node | undefined;
  /** Asks the question of a turn again, with another text. */
  resend(turn: number, text: string): void;
  regenerate(turn: number): void;
  /** Another version of a message, and what followed it. */
  showVersion(message: number, at: number): void;
  /** The last answer goes on where it was cut. */
  continue(): void;
}

/** Redrawing an answer for each of its pieces would be most of the page's work. */
const DRAW_MS = 60;

interface Turn {
  readonly whole: HTMLElement;
  readonly question: HTMLElement;
  asked: string;
  readonly attached: readonly Attached[];
  readonly answer: AnswerView;
}

export class Log {
  readonly node = make('div', 'log');
  #turns: Turn[] = [];
  #markdown: Promise<typeof import('./markdown.js')> | undefined;
  #idle = true;

  constructor(private readonly host: LogHost) {
    this.node.role = 'log';
  }

  get turns(): number {
    return this.#turns.length;
  }

  /** The last answer. */
  get answer(): AnswerView | undefined {
    return this.#turns.at(-1)?.answer;
  }

  /** The question of a turn, and what goes with it. */
  asked(turn: number): Pick<Turn, 'asked' | 'attached'> | undefined {
    return this.#turns[turn];
  }

  /** @param versions of the question, and of its answer */
  add(asked: string, attached: readonly Attached[] = [], versions: readonly (Versions | undefined)[] = []): AnswerView {
    const question = make('article', 'message user', asked);
    if (attached.length > 0) {
      void import('./attachments.js').then(({ chips }) => question.prepend(chips(attached, this.host.text)));
    }
    question.part.add('user');
    question.dir = 'auto';
    question.ariaLabel = this.host.text('question');
    const whole = make('div', 'turn', question);
    const index = this.#turns.length;
    const parser = this.host.plain ? undefined : (this.#markdown ??= import('./markdown.js'));
    const answer = new AnswerView(this.host, parser);
    const turn: Turn = { whole, question, asked, attached, answer };
    const edit = this.#button('edit', 'edit', () => this.#edit(index, turn));
    const actions = make(
      'div',
      'actions under',
      ...this.#versions(index * 2, versions[0]),
      edit,
      this.#copy(() => turn.asked),
    );
    actions.classList.add('of-question');
    const again = this.#button('again', 'regenerate', () => this.host.regenerate(index));
    const more = makeButton('quiet more', this.host.text('go_on'), () => this.#idle && this.host.continue());
    more.dataset['needsIdle'] = '';
    const copies = this.#copy(() => answer.text);
    answer.actions.append(...this.#versions(index * 2 + 1, versions[1]), more, copies, again);
    whole.append(actions, ...answer.nodes);
    this.#turns.push(turn);
    this.node.append(whole);
    this.#allow();
    return answer;
  }

  addNote(text: string): void {
    this.node.append(make('p', 'note', text));
  }

  /** Keeps the first turns. */
  cut(turns: number): void {
    for (const { whole } of this.#turns.splice(turns)) whole.remove();
    if (turns === 0) this.node.replaceChildren();
  }

  /** @param idle no answer is being written: turns can be edited */
  allow(idle: boolean): void {
    this.#idle = idle;
    this.#allow();
  }

  #allow(): void {
    for (const button of this.node.querySelectorAll<HTMLButtonElement>('button[data-needs-idle]')) {
      button.ariaDisabled = String(!this.#idle || button.dataset['needsIdle'] === 'never');
    }
  }

  #button(drawing: IconName, label: StringName, press: () => void): HTMLButtonElement {
    const button = iconButton(drawing, () => this.#idle && press());
    name(button, this.host.text(label));
    button.dataset['needsIdle'] = '';
    return button;
  }

  /** What goes from one version of a message to the next. */
  #versions(message: number, versions: Versions | undefined): HTMLElement[] {
    if (!versions?.others.length) return [];
    const { at, others } = versions;
    const step = (drawing: 'before' | 'after', to: number): HTMLButtonElement => {
      const isThere = to >= 0 && to <= others.length;
      const go = (): void => {
        this.host.showVersion(message, to);
        this.node.querySelector<HTMLElement>(`[data-message='${message}'] .${drawing}`)?.focus();
      };
      const button = this.#button(drawing, `version_${drawing}`, () => isThere && go());
      button.classList.add(drawing);
      if (!isThere) button.dataset['needsIdle'] = 'never';
      return button;
    };
    const [before, after] = [step('before', at - 1), step('after', at + 1)];
    const group = make('span', 'versions', before, `${at + 1} / ${others.length + 1}`, after);
    group.role = 'group';
    group.dataset['message'] = `${message}`;
    group.ariaLabel = this.host.text('version', { at: at + 1, of: others.length + 1 });
    return [group];
  }

  #copy(text: () => string): HTMLButtonElement {
    const button = iconButton('copy', () => copy(text(), button, this.host));
    name(button, this.host.text('copy'));
    return button;
  }

  #edit(index: number, turn: Turn): void {
    const field = make('textarea', '');
    field.dir = 'auto';
    field.value = turn.asked;
    field.ariaLabel = this.host.text('edit');
    const form = make('form', 'edit', field);
    const close = (): void => {
      form.replaceWith(turn.question);
      turn.whole.classList.remove('editing');
    };
    const cancel = makeButton('quiet', this.host.text('cancel'), close);
    form.append(make('div', 'actions', make('button', '', this.host.text('resend')), cancel));
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if ((text === '' && turn.attached.length === 0) || !this.#idle) return;
      close();
      this.host.resend(index, text);
    });
    turn.whole.classList.add('editing');
    turn.question.replaceWith(form);
    field.focus();
  }
}

/** An answer while it is written, and afterwards. */
export class AnswerView {
  readonly #article = make('article', 'message assistant');
  readonly #thought = make('details', 'thought');
  readonly #thoughtTitle = make('summary', '');
  readonly #thoughtText = make('p', '');
  readonly #calls = make('div', 'calls');
  readonly actions = make('div', 'actions under');
  #view: MarkdownView | undefined;
  #text = '';
  #ended = false;
  #drawn = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #thinkingSince: number | undefined;
  readonly #note = make('p', 'note');

  constructor(
    private readonly host: LogHost,
    parser: Promise<typeof import('./markdown.js')> | undefined,
  ) {
    this.#article.part.add('assistant');
    this.#article.ariaLabel = host.text('answer');
    this.#article.ariaBusy = 'true'; // screen readers wait for the whole of it
    this.#thought.append(this.#thoughtTitle, this.#thoughtText);
    this.#thought.part.add('thought');
    this.#thoughtText.dir = 'auto';
    this.#thought.hidden = this.#calls.hidden = this.actions.hidden = true;
    parser?.then(
      ({ MarkdownView }) => {
        this.#view = new MarkdownView(this.#article, codeParts(host));
        this.#draw();
      },
      () => {}, // it stays plain
    );
    if (parser) return;
    this.#article.classList.add('plain');
    this.#article.dir = 'auto';
  }

  get nodes(): readonly Node[] {
    return [this.#thought, this.#calls, this.#article, this.actions];
  }

  /** The answer without blanks around it. */
  get text(): string {
    return this.#text.trim();
  }

  get begun(): boolean {
    return this.text !== '' || this.#thoughtText.textContent !== '' || !this.#calls.hidden;
  }

  add(piece: string): void {
    if (piece.trim() !== '') this.#thoughtEnds();
    this.#text += piece;
    const wait = DRAW_MS - (performance.now() - this.#drawn);
    if (wait <= 0) this.#draw();
    else this.#timer ??= setTimeout(() => this.#draw(), wait);
  }

  addThought(piece: string): void {
    if (this.#thought.hidden) {
      this.#thinkingSince = performance.now();
      this.#thoughtTitle.textContent = this.host.text('thinking');
      this.#thought.hidden = false;
    }
    this.#thoughtText.append(this.#thoughtText.textContent === '' ? piece.trimStart() : piece);
  }

  /** The whole of what was said on the way, where it wasn't told in pieces. */
  finishThought(text: string): void {
    if (this.#thoughtText.textContent !== '') return;
    this.#thoughtTitle.textContent = this.host.text('thought_before');
    this.#thoughtText.textContent = text.trim();
    this.#thought.hidden = false;
  }

  /** @returns tells how the call went */
  addCall(name: string): (failed: boolean) => void {
    this.#calls.hidden = false;
    const line = make('p', 'call', this.host.text('calling', { name }));
    this.#calls.append(line);
    return (failed) => (line.textContent = this.host.text(failed ? 'call_failed' : 'called', { name }));
  }

  begin(): void {
    this.#ended = false;
    this.#article.ariaBusy = 'true';
    this.#note.remove();
    this.actions.hidden = true;
  }

  /**
   * @param note below the answer
   * @param cut it can go on
   * @param text all of it, where it may differ from what was added
   */
  end(note: string, cut = false, text = this.#text): void {
    this.#ended = true;
    this.#thoughtEnds();
    this.#text = text;
    this.#draw();
    this.#article.ariaBusy = 'false';
    this.#note.textContent = note;
    if (note !== '') this.actions.before(this.#note);
    this.actions.classList.toggle('cut', cut);
    this.actions.hidden = this.text === '' && !cut;
  }

  #thoughtEnds(): void {
    if (this.#thinkingSince === undefined) return;
    const seconds = Math.max(1, Math.round((performance.now() - this.#thinkingSince) / 1000));
    this.#thoughtTitle.textContent = this.host.text('thought', { seconds });
    this.#thinkingSince = undefined;
  }

  #draw(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#drawn = performance.now();
    if (!this.#view) this.#article.textContent = this.text;
    else this.#view.show(asJson(this.text, this.#ended) ?? this.text, this.#ended);
  }
}

/** An answer that is a JSON document, as a code block. */
function asJson(text: string, ended: boolean): string | undefined {
  if (!/^[[{]\s*["[{\]}\d\-tfn]/.test(text)) return undefined;
  if (!ended) return text.startsWith('{') ? `\`\`\`json\n${text}` : undefined;
  const value = parsed(text);
  return value === undefined ? undefined : `\`\`\`json\n${JSON.stringify(value, undefined, 2)}\n\`\`\``;
}

function codeParts(host: LogHost): CodeParts {
  return {
    head: (language, text) => {
      const button = makeButton('quiet', host.text('copy'), () => copy(text, button, host));
      return make('figcaption', '', make('span', '', language || host.text('code')), button);
    },
    highlight: (text, language) => host.highlight(text, language),
    math: (tex, display) => host.math(tex, display),
  };
}

const COPIED_MS = 1500;

/** To the clipboard; the button says so. */
async function copy(text: string, button: HTMLButtonElement, host: LogHost): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return; // a frame that may not
  }
  const say = (what: StringName): void => {
    if (button.classList.contains('icon-button')) name(button, host.text(what));
    else button.textContent = host.text(what);
    button.classList.toggle('done', what === 'copied');
  };
  say('copied');
  setTimeout(() => say('copy'), COPIED_MS);
}
