/** Finds regular expressions of a tokenizer.json that can keep a text waiting for ever: their engine tries every way to match. */

import { tried } from '../base/errors.js';
import { cyclesOf, valueIn, nth } from '../base/lists.js';

/** Characters of every kind: those that two atoms both take say what they have in common. */
const SAMPLES = [
  ...Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)),
  ...Array.from(
    '\u0085\u00a0\u00ad²½ªßéÀǅʰ\u0301\u0903\u20ddβДאعक中あア한ไ٣१Ⅷ\u0378\ud800\u2028\u2029\u200b\u200d\u3000\ufeff\ue000—«»‿€©♥😀𐐀𝒜𠀀',
  ),
];

/** Larger ones are no tokenizer's, but for the letters that a set lists. */
const [MAX_ATOMS, MAX_LETTERS, MAX_GROUPS] = [150, 10_000, 50];
/** Looked at in a check, at most. */
const MAX_WORK = 2e7;
/** Letters of the words on which ways are counted; and ways to one place that are too many. */
const [WORD, MAX_WAYS] = [24, 16];

/** Why an expression isn't run; undefined where a text of n letters takes n * n steps at most. */
export function slowExpression(source: string): string | undefined {
  try {
    if (source.length > MAX_LETTERS) throw new Refused(`it has more than ${MAX_LETTERS} letters`);
    new Checker(source).check();
    return undefined;
  } catch (error) {
    if (error instanceof Refused) return error.message;
    throw error;
  }
}

/** Ends and a beginning of published expressions, the last part of which takes all that the others look at in vain. */
const ENDS = ['\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+', '\\s*[\\r\\n]|\\s+(?!\\S)|\\s+', '\\s+(?!\\S)|\\s+', '\\s+(?!\\S)'];
const [UPPER, LOWER] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];
const CASED = ['*', '+'].map((times) => `[^\\r\\n\\p{L}\\p{N}]?${UPPER}${times}${LOWER}${times === '*' ? '+' : '*'}`);
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";

/**
 * Runs of characters, each of which an expression may look at again from each of its characters: a run of n takes n * n steps. None
 * where that isn't so, and where it isn't known.
 */
export function looksAgain(source: string): RegExp[] {
  const cased = [CONTRACTIONS, '']
    .map((more) => CASED.map((part) => `${part}${more}|`).join(''))
    .find((one) => source.startsWith(one));
  const end = ENDS.find((one) => source === one || source.endsWith(`|${one}`)) ?? '';
  const known = source.slice(cased?.length ?? 0);
  try {
    const checker = new Checker(known.slice(0, known.length - end.length));
    checker.parse();
    return checker.runs();
  } catch (error) {
    if (error instanceof Refused) return [];
    throw error;
  }
}

class Refused extends Error {}
const broken = (): Refused => new Refused("it isn't a regular expression that is read here");

interface Atom {
  readonly number: number;
  readonly source: string;
  /** Those that may come next; one that may in two ways is there twice. */
  readonly next: Atom[];
  /** Of those, what may come before anything has matched, once. */
  goesOn: readonly Atom[];
  /** The kinds of characters that it takes: those that the same atoms take are of one kind. */
  takes: ReadonlySet<number>;
  /** Where the whole has matched: what was tried before isn't tried again. */
  isEnd: boolean;
}

/** A part of an expression, as its atoms that may come first and last, as often as there are ways to. */
interface Part {
  readonly first: readonly Atom[];
  readonly last: readonly Atom[];
  /** Those of the last after which nothing can fail. */
  readonly sure: readonly Atom[];
  readonly empty: boolean;
  /** An anchor, or a look around: takes nothing, and may fail. */
  readonly guard: boolean;
}
const NOTHING: Part = { first: [], last: [], sure: [], empty: true, guard: false };

class Checker {
  #at = 0;
  #groups = 0;
  /** Within what looks back. */
  #back = false;
  #work = 0;
  readonly #atoms: Atom[] = [];
  #starts: readonly Atom[] = [];

  constructor(private readonly source: string) {}

  parse(): void {
    const { first, sure } = this.#alternatives();
    this.#starts = first;
    for (const atom of sure) atom.isEnd = true;
    for (const atom of this.#atoms) atom.goesOn = [...new Set(atom.next)].filter(({ isEnd }) => !isEnd);
    if (this.#at < this.source.length) throw broken();
  }

  check(): void {
    this.parse();
    this.#findKinds();
    this.#checkLoops();
    this.#checkShares();
    this.#checkWays();
  }

  #alternatives(): Part {
    if (++this.#groups > MAX_GROUPS) throw new Refused(`it nests more than ${MAX_GROUPS} groups`);
    const parts = [this.#sequence()];
    while (this.#take('|')) parts.push(this.#sequence());
    this.#groups--;
    return {
      first: parts.flatMap(({ first }) => first),
      last: parts.flatMap(({ last }) => last),
      sure: parts.flatMap(({ sure }) => sure),
      empty: parts.some(({ empty }) => empty),
      guard: parts.some(({ guard }) => guard),
    };
  }

  #sequence(): Part {
    let part = NOTHING;
    while (this.#at < this.source.length && !'|)'.includes(this.source.charAt(this.#at))) {
      part = this.#join(part, this.#quantified());
    }
    return part;
  }

  #join(left: Part, right: Part): Part {
    this.#link(left.last, right.first);
    return {
      first: left.empty ? [...left.first, ...right.first] : left.first,
      last: right.empty ? [...left.last, ...right.last] : right.last,
      sure: right.empty && !right.guard ? [...left.sure, ...right.sure] : right.sure,
      empty: left.empty && right.empty,
      guard: left.guard || right.guard,
    };
  }

  #link(from: readonly Atom[], to: readonly Atom[]): void {
    this.#spend(from.length * to.length);
    for (const atom of from) atom.next.push(...to);
  }

  #quantified(): Part {
    const from = this.#at;
    let part = this.#atom();
    for (let again = false; ; again = true) {
      const match = this.#match(/[*+?][?+]?|\{(?=,?\d)(\d*)(,?)(\d*)\}\??/y);
      if (match === undefined) return part;
      const [text, low = '', comma = '', high = ''] = match;
      const counted = text.startsWith('{');
      const least = counted ? Number(low) : text.startsWith('+') ? 1 : 0;
      const most = counted ? Number(comma === '' ? low : high || Infinity) : text.startsWith('?') ? 1 : Infinity;
      const times = most === Infinity ? Math.max(1, least) : most;
      if (this.#back && most === Infinity) throw new Refused('it looks back without end');
      if (times > MAX_ATOMS || (again && times > 1)) throw new Refused(`it repeats a part ${text}`);
      const after = this.#at;
      const copies = [part];
      while (copies.length < times) {
        this.#at = from;
        copies.push(this.#atom());
      }
      this.#at = after;
      const end = copies.at(-1) ?? part;
      if (most === Infinity) this.#link(end.last, end.first);
      part = copies.reduce(
        (before, copy, i) => this.#join(before, i < least ? copy : { ...copy, empty: true }),
        NOTHING,
      );
    }
  }

  #atom(): Part {
    if (this.#take('(')) {
      const kind = this.#match(/\?(?:[imsx-]+:|<?[=!]|[:>]|<[A-Za-z_]\w*>)/y)?.[0] ?? '';
      if (kind === '' && this.source[this.#at] === '?') throw broken();
      const looks = /^\?<?[=!]/.test(kind);
      // From the end of a text it may take as long as the text is, wherever it stands.
      if (looks && this.#back) throw new Refused('it looks around within what looks back');
      this.#back ||= looks && kind.startsWith('?<');
      const part = this.#alternatives();
      if (!this.#take(')')) throw broken();
      if (!looks) return part;
      this.#back = false;
      // It is tried behind everything that may come before it, and what it has matched may still fail.
      return { ...NOTHING, first: part.first, guard: true };
    }
    const from = this.#at;
    if (this.#take('[')) {
      this.#match(/\^?\]?/y);
      for (let depth = 1; depth > 0;) {
        const text = this.#match(/\\[\s\S]|\[:\^?\w+:\]|[\s\S]/y)?.[0];
        if (text === undefined) throw broken();
        if (text === '[') depth++;
        else if (text === ']') depth--;
      }
    } else {
      const text = this.#match(/\\(?:[pPxu]\{[^}]*\}|x[\dA-Fa-f]{2}|u[\dA-Fa-f]{4}|[\s\S])|[\s\S]/uy)?.[0];
      if (text === undefined) throw broken();
      if (/^(?:\\[AzZbBG]|[$^])$/.test(text)) return { ...NOTHING, guard: true };
      if (/^\\[1-9k]/.test(text)) throw new Refused('it refers back to a group');
    }
    const number = this.#atoms.length;
    if (number >= MAX_ATOMS) throw new Refused(`it has more than ${MAX_ATOMS} parts`);
    const source = this.source.slice(from, this.#at);
    const atom: Atom = { number, source, next: [], goesOn: [], takes: new Set(), isEnd: false };
    this.#atoms.push(atom);
    return { first: [atom], last: [atom], sure: [atom], empty: false, guard: false };
  }

  #take(text: string): boolean {
    const found = this.source.startsWith(text, this.#at);
    if (found) this.#at += text.length;
    return found;
  }

  #match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.source) ?? undefined;
    this.#at += match?.[0].length ?? 0;
    return match;
  }

  #spend(work: number): void {
    this.#work += work;
    if (this.#work > MAX_WORK) throw new Refused('its parts may follow one another in too many ways');
  }

  #findKinds(): void {
    const written = [...this.source.matchAll(/\\[xu]\{?([\dA-Fa-f]{2,6})/g)].map(([, hex = '']) =>
      Number.parseInt(hex, 16),
    );
    const codes = written.filter((code) => code <= 0x10ffff).map((code) => String.fromCodePoint(code));
    const takes = new Map(this.#atoms.map(({ source }) => [source, new Set<number>()]));
    const tests = [...takes].map(([of, set], test) => ({ test, set, pattern: patternOf(of, this.#insensitive) }));
    const kinds = new Map<string, number>();
    for (const sample of new Set([...SAMPLES, ...Array.from(this.source), ...codes])) {
      const taking = tests.filter(({ pattern }) => pattern?.test(sample) ?? true);
      const kind = valueIn(kinds, taking.map(({ test }) => test).join(), () => kinds.size);
      for (const { set } of taking) set.add(kind);
    }
    for (const atom of this.#atoms) atom.takes = takes.get(atom.source) ?? atom.takes;
  }

  /** A loop that takes a word in two ways takes it n times in 2^n ways: two atoms that it is at by turns are then at one and the same. */
  #checkLoops(): void {
    for (const loop of this.#loops()) {
      const size = loop.length;
      const places = new Map(loop.map((atom, place) => [atom, place]));
      const nexts = loop.map(({ next }) =>
        next.flatMap((atom) => {
          const place = places.get(atom);
          return place === undefined || atom.takes.size === 0 ? [] : [{ place, takes: atom.takes }];
        }),
      );
      const pairs = nexts.flatMap((ones) =>
        nexts.map((others) => {
          this.#spend(1 + 10 * ones.length * others.length);
          return ones.flatMap((one) =>
            others.filter((other) => meet(one.takes, other.takes)).map((other) => one.place * size + other.place),
          );
        }),
      );
      const isOne = (pair: number): boolean => pair % (size + 1) === 0;
      const twice = nexts.some((next) => new Set(next.map(({ place }) => place)).size < next.length);
      if (twice || cyclesOf(pairs).some((cycle) => cycle.some(isOne) && !cycle.every(isOne)))
        throw new Refused('it repeats what may be taken in several ways');
    }
  }

  /**
   * Two loops share out a text of n letters in n ways, from n starts to n ends, where a word leads around the one, from the one to the
   * other, and around the other. Without such a word there are no more ways however long a text is (Weber and Seidl, 1991).
   */
  #checkShares(): void {
    const count = this.#atoms.length;
    const loopOf = new Map(this.#loops().flatMap((loop) => loop.map((atom) => [atom, loop] as const)));
    const codeOf = (a: Atom, b: Atom, c: Atom): number => (a.number * count + b.number) * count + c.number;
    const atomOf = (code: number): Atom => nth(this.#atoms, Math.floor(code) % count);
    for (const [p, inP] of loopOf)
      for (const [q, inQ] of loopOf) {
        if (inP === inQ) continue;
        const found = new Set([codeOf(p, p, q)]);
        for (const triple of found) {
          const [a, b, c] = [atomOf(triple / count / count), atomOf(triple / count), atomOf(triple)];
          if (a === p && b === q && c === q) throw new Refused('two repeats share out a text in many ways');
          for (const x of a.goesOn) {
            if (loopOf.get(x) !== inP) continue;
            for (const z of c.goesOn) {
              if (loopOf.get(z) !== inQ) continue;
              this.#spend(x.takes.size + b.goesOn.length);
              const kinds = [...x.takes].filter((kind) => z.takes.has(kind));
              for (const y of b.goesOn) if (kinds.some((kind) => y.takes.has(kind))) found.add(codeOf(x, y, z));
            }
          }
        }
      }
  }

  /**
   * Ways to take a word before anything has matched, of words of one character or two in turn: from the beginning, or from within a loop
   * behind some other beginning.
   */
  #checkWays(): void {
    const kinds = new Set(this.#atoms.flatMap(({ takes }) => [...takes]));
    const inLoops = this.#loops().flat();
    const beginnings = [this.#starts, ...inLoops.map((atom) => [atom])];
    for (const even of kinds)
      for (const odd of kinds)
        for (const beginning of beginnings) {
          let ways = new Map<Atom, number>();
          for (let letter = 0; letter < WORD; letter++) {
            const next = new Map<Atom, number>();
            const go = (atom: Atom, count: number): void => {
              this.#spend(1);
              if (atom.takes.has(letter % 2 ? odd : even))
                next.set(atom, atom.isEnd ? 1 : (next.get(atom) ?? 0) + count);
            };
            if (letter === 0) for (const atom of beginning) go(atom, 1);
            for (const [atom, count] of ways) for (const other of atom.next) go(other, count);
            ways = next;
            if (ways.size === 0) break;
            if ([...ways.values()].some((count) => count > MAX_WAYS))
              throw new Refused('its parts may share out a text in many ways');
          }
        }
  }

  /** Atoms that may come again behind themselves before anything has matched, by those that may come behind one another. */
  #loops(): Atom[][] {
    const cycles = cyclesOf(this.#atoms.map(({ goesOn, isEnd }) => (isEnd ? [] : goesOn.map(({ number }) => number))));
    return cycles.map((cycle) => cycle.map((number) => nth(this.#atoms, number)));
  }

  runs(): RegExp[] {
    return this.#loops().flatMap((loop) => {
      const sets = loop.map(({ source }) => setOf(source));
      if (sets.includes(undefined)) return [];
      const pattern = regExpOf(`(?:${[...new Set(sets)].join('|')})+`, this.#insensitive, 'g');
      return pattern ? [pattern] : [];
    });
  }

  get #insensitive(): boolean {
    return /\(\?[msx]*i/.test(this.source);
  }
}

const meet = (one: ReadonlySet<number>, other: ReadonlySet<number>): boolean =>
  [...one].some((kind) => other.has(kind));

/** What tells whether an atom takes a character; undefined where that isn't known: then it may take any. */
function patternOf(atom: string, insensitive: boolean): RegExp | undefined {
  const set = setOf(atom);
  // Samples are of all general categories, and of few scripts.
  return set === undefined || /\\[pP]\{(?![A-Z][a-z]?\})/.test(atom)
    ? undefined
    : regExpOf(`^(?:${set})$`, insensitive);
}

const regExpOf = (source: string, insensitive: boolean, flags = ''): RegExp | undefined =>
  tried(() => new RegExp(source, `${flags}${insensitive ? 'i' : ''}su`));

/** An atom as an expression of JavaScript's. */
function setOf(atom: string): string | undefined {
  if (atom === '.') return '[^\\n]';
  if (/\\[WDH]|\[:|&&|.\[/s.test(atom)) return undefined;
  const rewritten = atom.replace(/\\([\s\S])/g, (text, letter: string) => {
    const inside = { w: '\\p{L}\\p{N}\\p{M}\\p{Pc}', d: '\\p{Nd}', h: '\\da-fA-F', s: '\\p{White_Space}' }[letter];
    if (letter === 'S') return '\\P{White_Space}';
    if (inside === undefined) return /[A-Za-z0-9^$\\.*+?()[\]{}|/-]/.test(letter) ? text : letter;
    return atom.startsWith('[') ? inside : `[${inside}]`;
  });
  return (/^[{}\]]$/.test(rewritten) ? `\\${rewritten}` : rewritten).replace(/\\x\{/g, '\\u{');
}
