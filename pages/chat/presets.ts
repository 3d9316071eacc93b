/** Who the model is to be, by a system message. */
export interface Preset {
  readonly name: string;
  readonly system: string;
  /** Offered before anything is said. */
  readonly question?: string;
}

/** The first one asks for nothing. */
export const PRESETS: readonly Preset[] = [
  { name: 'As the model is', system: '' },
  { name: 'Short answers', system: 'Answer in one or two sentences. Leave out introductions and repetitions.' },
  {
    name: 'Teacher',
    system:
      'You are a patient teacher. Explain step by step, in simple words, with one example, and ask a question at the end.',
  },
  {
    name: 'Programmer',
    system:
      'You are an experienced programmer. Answer with working code in a code block, then explain it in a few sentences.',
  },
  {
    name: 'Summarise',
    system: 'Summarise what you are given in at most five bullet points, in the language that it is written in.',
  },
  {
    name: 'Proofread',
    system:
      'Correct spelling, grammar and style of what you are given. Answer with the corrected text, then list the changes.',
  },
  {
    name: 'Translate to English',
    system: 'Translate what you are given into English. Answer with the translation only.',
  },
];

const OWN = 'splitkv-presets';

/** Presets that somebody saved in this browser, by their names. */
export class OwnPresets {
  constructor(private readonly storage: Pick<Storage, 'getItem' | 'setItem'>) {}

  get list(): readonly Preset[] {
    try {
      return read(JSON.parse(this.storage.getItem(OWN) ?? '[]'));
    } catch {
      return []; // something else has written it
    }
  }

  /** One of this name is replaced. @param before the name that it had */
  save(preset: Preset, before = preset.name): void {
    const list = this.list.filter(({ name }) => name !== preset.name || name === before);
    const at = list.findIndex(({ name }) => name === before);
    this.#write(at < 0 ? [...list, preset] : list.with(at, preset));
  }

  delete(name: string): void {
    this.#write(this.list.filter((one) => one.name !== name));
  }

  /** Adds those of a file that aren't here: a name that has another preset gets a number. @returns how many */
  add(presets: unknown): number {
    const here = new Set(this.list.map(keyOf));
    const fresh = read(presets).filter((one) => !here.has(keyOf(one)));
    for (const preset of fresh) {
      let { name } = preset;
      for (let number = 2; this.list.some((one) => one.name === name); number++) name = `${preset.name} (${number})`;
      this.save({ ...preset, name });
    }
    return fresh.length;
  }

  #write(list: readonly Preset[]): void {
    this.storage.setItem(OWN, JSON.stringify(list));
  }

  /** Whether a `storage` event is about them. */
  static isList = (key: string | null): boolean => key === OWN;
}

/** Names with a number are those of before, added from a file. */
const keyOf = ({ name, system, question = '' }: Preset): string =>
  JSON.stringify([name.replace(/ \(\d+\)$/, ''), system, question]);

const read = (value: unknown): readonly Preset[] =>
  (Array.isArray(value) ? (value as readonly unknown[]) : []).flatMap((one) => {
    const { name, system, question } = (one ?? {}) as Record<string, unknown>;
    if (typeof name !== 'string' || name.trim() === '' || typeof system !== 'string') return [];
    return [{ name: name.trim(), system, ...(typeof question === 'string' && question !== '' && { question }) }];
  });
