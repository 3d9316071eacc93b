import { make, makeButton } from '../../src/app/shared/dom.js';
import type { Conversations, Entry } from './conversations.js';
import { tool } from './drawing.js';

export interface SideHost {
  /** The id of the conversation that is shown. */
  readonly current: string;
  select(id: string): void;
  begin(): void;
  /** The one that is shown is about to go. Resolves once nothing more of it is kept. */
  leave(): Promise<void>;
}

/** The list of conversations: search, rename, delete, export and import. */
export class SidePanel {
  readonly search = make('input', '');
  readonly #list = make('ul', 'conversations');
  readonly #note = make('p', 'note');

  constructor(
    private readonly node: HTMLElement,
    private readonly store: Conversations,
    private readonly host: SideHost,
  ) {
    this.search.type = 'search';
    this.search.placeholder = 'Search';
    this.search.ariaLabel = 'Search conversations';
    this.search.addEventListener('input', () => this.show());
    this.#list.role = 'list';
    this.#note.role = 'status';
    const file = make('input', '');
    Object.assign(file, { type: 'file', accept: '.json,application/json' });
    file.addEventListener('change', () => void this.#import(file));
    const begin = tool('new', 'New conversation', () => {
      this.close();
      host.begin();
    });
    node.replaceChildren(
      make('div', 'side-head', make('h2', '', 'Conversations'), begin),
      this.search,
      this.#list,
      this.#note,
      make(
        'div',
        'side-foot',
        makeButton('quiet', 'Export all', () => this.#export()),
        makeButton('quiet', 'Import…', () => file.click()),
      ),
    );
    for (const button of node.querySelectorAll('.side-foot button')) button.classList.add('button');
  }

  /** Closes the drawer; beside the chat it stays. */
  close(): void {
    if (this.node.matches(':popover-open')) this.node.hidePopover();
  }

  show(): void {
    const found = this.store.search(this.search.value);
    const empty = this.search.value === '' ? 'What you talk about is listed here.' : 'Nothing was found.';
    this.#list.replaceChildren(
      ...(found.length > 0 ? found.map((entry) => this.#row(entry)) : [make('li', 'note', empty)]),
    );
  }

  #row(entry: Entry & { readonly excerpt?: string }): HTMLElement {
    const { id, title, at, excerpt } = entry;
    const said = make('span', '', title);
    said.dir = 'auto';
    const about = excerpt === undefined ? make('span', 'when', whenText(at)) : make('span', 'excerpt', excerpt);
    about.dir = 'auto';
    const open = makeButton('open', [said, about], () => {
      this.close();
      this.host.select(id);
    });
    const row: HTMLElement = make(
      'li',
      'conversation',
      open,
      tool('rename', `Rename “${title}”`, () => this.#rename(row, entry)),
      tool('delete', `Delete “${title}”`, () => this.#delete(entry)),
    );
    if (id === this.host.current) {
      row.classList.add('current');
      open.ariaCurrent = 'true';
    }
    return row;
  }

  #rename(row: HTMLElement, { id, title }: Entry): void {
    const field = make('input', '');
    field.value = title;
    field.dir = 'auto';
    field.ariaLabel = 'Title';
    let isDone = false;
    const end = (isMeant: boolean): void => {
      if (isDone) return;
      isDone = true;
      if (isMeant) this.store.rename(id, field.value);
      this.show();
      document.dispatchEvent(new Event('conversation-renamed'));
    };
    field.addEventListener('keydown', (event) => {
      event.stopPropagation();
      if (event.key === 'Enter') end(true);
      if (event.key === 'Escape') end(false);
      if (event.key === 'Escape' || event.key === 'Enter') event.preventDefault();
    });
    field.addEventListener('blur', () => end(true));
    row.replaceChildren(field);
    field.focus();
    field.select();
  }

  async #delete({ id, title }: Entry): Promise<void> {
    const isCurrent = id === this.host.current;
    if (isCurrent) await this.host.leave();
    const back = this.store.delete(id);
    const undo = makeButton('quiet button', 'Undo', () => {
      const again = back();
      this.#note.replaceChildren();
      this.show();
      if (isCurrent) this.host.select(again);
    });
    this.#note.replaceChildren(`“${title}” was deleted. `, undo);
    this.show();
  }

  #export(): void {
    const link = make('a', '');
    link.href = URL.createObjectURL(new Blob([this.store.export()], { type: 'application/json' }));
    link.download = 'conversations.json';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  async #import(input: HTMLInputElement): Promise<void> {
    const [file] = input.files ?? [];
    input.value = '';
    if (!file) return;
    try {
      const added = this.store.import(await file.text());
      this.#note.textContent =
        added === 0 ? 'All of that is here already.' : `${added} ${added === 1 ? 'was' : 'were'} added.`;
    } catch (error) {
      this.#note.textContent = `That can't be imported: ${error instanceof Error ? error.message : String(error)}`;
    }
    this.show();
    document.dispatchEvent(new Event('conversation-renamed'));
  }
}

/** The time of today, otherwise the day. */
function whenText(at: number): string {
  const when = new Date(at);
  const isToday = when.toDateString() === new Date().toDateString();
  return isToday
    ? when.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' })
    : when.toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: 'numeric' });
}
