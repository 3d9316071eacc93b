import { checkMessages, type ShownMessage } from '../../src/app/chat/session.js';
import { readKept } from '../../src/app/chat/kept.js';
import { OwnPresets } from './presets.js';

/** A conversation in the list. What was said is where the element keeps it, by the `keep` that is the id. */
export interface Entry {
  readonly id: string;
  readonly title: string;
  /** When something was said last, in milliseconds since 1970. */
  readonly at: number;
  /** A person gave the title. */
  readonly isNamed?: boolean;
  /** Its system message. */
  readonly system?: string;
}

/** A conversation in a file. */
interface Written extends Omit<Entry, 'id'> {
  readonly messages: readonly ShownMessage[];
}

const LIST = 'splitkv-conversations';
const FORMAT = 'splitkv-conversations-1';
/** Letters of a title that is a question's beginning. */
const LONGEST_TITLE = 60;
/** Where the element keeps what has this name. */
const keptAt = (id: string): string => `splitkv-chat:${id}`;

/** The conversations of this browser: a list of them, and what was said in each. */
export class Conversations {
  readonly presets: OwnPresets;

  constructor(
    private readonly storage: Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>,
    private readonly now: () => number = Date.now,
  ) {
    this.presets = new OwnPresets(storage);
  }

  /** The one that was talked in last comes first. */
  get list(): readonly Entry[] {
    try {
      const list = JSON.parse(this.storage.getItem(LIST) ?? '[]') as unknown;
      if (!Array.isArray(list)) return [];
      return list.filter(isEntry).toSorted((one, other) => other.at - one.at);
    } catch {
      return []; // something else has written it
    }
  }

  /** Of a conversation that has nothing said yet, and isn't in the list before. */
  newId(): string {
    const random = crypto.getRandomValues(new Uint32Array(1))[0]!.toString(36);
    return `${this.now().toString(36)}-${random}`;
  }

  find(id: string): Entry | undefined {
    return this.list.find((entry) => entry.id === id);
  }

  messages(id: string): readonly ShownMessage[] {
    const text = this.storage.getItem(keptAt(id));
    try {
      return text === null ? [] : readKept(text).messages;
    } catch {
      return [];
    }
  }

  /** Something was said: it is the first of the list, and has a title. */
  touch(id: string, messages: readonly ShownMessage[]): void {
    const before = this.find(id);
    if (messages.length === 0) return;
    const title = before?.isNamed ? before.title : titleOf(messages);
    this.#put({ ...before, id, title, at: this.now() });
  }

  /** Changes an entry, or begins one. */
  change(id: string, change: Partial<Omit<Entry, 'id'>>): void {
    const before = this.find(id);
    if (before) this.#put({ ...before, ...change });
  }

  rename(id: string, title: string): void {
    const named = title.trim();
    if (named !== '') this.change(id, { title: named, isNamed: true });
    else this.change(id, { title: titleOf(this.messages(id)), isNamed: false });
  }

  /** @returns brings it back, by another id, which it returns: tabs that showed the old one have heard that all of it is taken back */
  delete(id: string): () => string {
    const entry = this.find(id);
    const kept = this.storage.getItem(keptAt(id));
    this.#write(this.list.filter((other) => other.id !== id));
    this.storage.removeItem(keptAt(id));
    return () => {
      const again = this.newId();
      if (kept !== null) this.storage.setItem(keptAt(again), kept);
      if (entry) this.#put({ ...entry, id: again });
      return again;
    };
  }

  /** A new one with what was said elsewhere. @returns its id */
  add({ title, at, isNamed, system }: Partial<Omit<Entry, 'id'>>, messages: readonly ShownMessage[]): string {
    const id = this.newId();
    this.storage.setItem(keptAt(id), JSON.stringify({ messages: checkMessages(messages) }));
    const named = title !== undefined && title.trim() !== '';
    this.#put({
      id,
      title: named ? title.trim() : titleOf(messages),
      at: at ?? this.now(),
      ...(named && isNamed && { isNamed }),
      ...(system !== undefined && { system }),
    });
    return id;
  }

  /** Those whose title or texts have all the words, with a piece of text around the first one. */
  search(query: string): readonly (Entry & { readonly excerpt?: string })[] {
    const words = query.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return this.list;
    return this.list.flatMap((entry) => {
      const text = this.messages(entry.id)
        .map(({ content }) => content)
        .join('\n');
      const lower = `${entry.title}\n${text}`.toLocaleLowerCase();
      if (!words.every((word) => lower.includes(word))) return [];
      const inText = text.toLocaleLowerCase().indexOf(words[0]!);
      if (inText < 0) return [entry];
      const from = Math.max(0, inText - 30);
      const excerpt = text
        .slice(from, inText + 90)
        .replaceAll(/\s+/g, ' ')
        .trim();
      return [{ ...entry, excerpt: `${from > 0 ? '…' : ''}${excerpt}…` }];
    });
  }

  /** All of them as a file, with the presets. */
  export(): string {
    const conversations: Written[] = this.list.map(({ id, ...entry }) => ({ ...entry, messages: this.messages(id) }));
    return JSON.stringify({ format: FORMAT, conversations, presets: this.presets.list }, undefined, 1);
  }

  /**
   * Adds what a file has that isn't here yet: of `export`, or the messages of one conversation.
   * @returns how many conversations and presets were new
   * @throws Error for another file
   */
  import(text: string): number {
    const found = JSON.parse(text) as Readonly<Partial<Record<'format' | 'conversations' | 'presets', unknown>>>;
    const given = Array.isArray(found) ? [{ messages: found }] : found?.format === FORMAT ? found.conversations : null;
    if (!Array.isArray(given)) throw new Error('this file holds no conversations');
    // All are read before any is added.
    const read = (given as Partial<Written>[]).map((one) => ({ ...one, messages: checkMessages(one?.messages ?? []) }));
    const here = new Set(this.list.map(({ id }) => JSON.stringify(this.messages(id))));
    const fresh = read.filter(({ messages }) => messages.length > 0 && !here.has(JSON.stringify(messages)));
    for (const { messages, title, at, isNamed, system } of fresh) {
      this.add(
        {
          ...(typeof title === 'string' && { title }),
          ...(typeof at === 'number' && { at }),
          ...(isNamed === true && { isNamed }),
          ...(typeof system === 'string' && { system }),
        },
        messages,
      );
    }
    return fresh.length + (Array.isArray(found) ? 0 : this.presets.add(found.presets));
  }

  #put(entry: Entry): void {
    this.#write([entry, ...this.list.filter(({ id }) => id !== entry.id)]);
  }

  #write(list: readonly Entry[]): void {
    this.storage.setItem(LIST, JSON.stringify(list));
  }

  /** Whether a `storage` event is about the list. */
  static isList = (key: string | null): boolean => key === null || key === LIST || OwnPresets.isList(key);
}

const isEntry = (value: unknown): value is Entry => {
  const { id, title, at } = (value ?? {}) as Record<string, unknown>;
  return typeof id === 'string' && typeof title === 'string' && typeof at === 'number';
};

/** The beginning of the first question, or what goes with it. */
export function titleOf(messages: readonly ShownMessage[]): string {
  const [first] = messages;
  const text = (first?.content || first?.attached?.[0]?.name || '').replaceAll(/\s+/g, ' ').trim();
  if (text === '') return 'New conversation';
  if (text.length <= LONGEST_TITLE) return text;
  const cut = text.slice(0, LONGEST_TITLE);
  return `${cut.replace(/\s\S*$/, '') || cut}…`;
}
