import { type AST, RegExpParser } from '@eslint-community/regexpp';
import { usageError } from '../base/errors.js';
import { show } from '../base/json.js';
import { Kept } from '../base/kept.js';
import { valueIn } from '../base/lists.js';
import { ALL, characters, type CodePoints, codePoints, complement, NONE, union } from './code_points.js';
import { type Automaton, both, except, Fragments, type Place, spend, stepsLeft } from './automaton.js';

/** No real pattern is longer. */
const MAX_LETTERS = 10_000;

const refused = (source: string, what: string): Error => usageError(`the regular expression ${show(source)}: ${what}`);

/**
 * The texts that a regular expression of JavaScript matches.
 * @param whole it matches whole texts; otherwise texts that have a match anywhere, as JSON Schema's `pattern` does
 * @throws SplitkvError `usage` for one that isn't right, or has what no automaton can do: it is named
 */
export function textsOf(source: string, whole: boolean): Automaton {
  if (source.length > MAX_LETTERS) throw usageError(`a regular expression has more than ${MAX_LETTERS} letters`);
  const parser = new RegExpParser({ ecmaVersion: 2025 });
  let pattern: AST.Pattern;
  try {
    pattern = parser.parsePattern(source, 0, source.length, { unicode: true });
  } catch {
    // Escapes that need none are allowed without the flag u.
    try {
      pattern = parser.parsePattern(source, 0, source.length, { unicode: false });
    } catch (error) {
      // It names the expression once more.
      throw refused(source, `${(error as Error).message.split(': ').at(-1)}`);
    }
  }
  return new Reader(source).texts(pattern.alternatives, whole, whole);
}

class Reader {
  readonly #sets = new Map<AST.Element, CodePoints>();

  constructor(readonly source: string) {}

  /** `atStart`, `atEnd`: nothing may come before or behind also where no anchor says so. */
  texts(alternatives: readonly AST.Alternative[], atStart: boolean, atEnd: boolean): Automaton {
    const simple: { elements: readonly AST.Element[]; before: boolean; behind: boolean }[] = [];
    const special: Automaton[] = [];
    for (const { elements: all } of alternatives) {
      let elements = all;
      // Around the whole of it a group changes nothing.
      const lone = elements.length === 1 ? elements[0] : undefined;
      if (lone && (lone.type === 'Group' || lone.type === 'CapturingGroup') && hasAnchors(lone)) {
        special.push(this.texts(lone.alternatives, atStart, atEnd));
        continue;
      }
      let before = !atStart;
      let behind = !atEnd;
      while (isEdge(elements[0], 'start')) {
        before = false;
        elements = elements.slice(1);
      }
      while (isEdge(elements.at(-1), 'end')) {
        behind = false;
        elements = elements.slice(0, -1);
      }
      const ahead: AST.LookaheadAssertion[] = [];
      while (elements[0]?.type === 'Assertion' && elements[0].kind === 'lookahead') {
        ahead.push(elements[0]);
        elements = elements.slice(1);
      }
      if (ahead.length === 0) {
        simple.push({ elements, before, behind });
        continue;
      }
      if (before) throw refused(this.source, 'a lookahead is done at the start of the text only, behind ^');
      let texts = this.#of([{ elements, before, behind }]);
      for (const { alternatives: wanted, negate } of ahead) {
        const found = this.texts(wanted, true, false);
        texts = both(texts, negate ? except(found) : found);
      }
      special.push(texts);
    }
    if (special.length === 0) return this.#of(simple);
    // a or b: not (neither a nor b).
    const parts = [...special, ...(simple.length > 0 ? [this.#of(simple)] : [])];
    return parts.length === 1 ? parts[0]! : except(parts.map(except).reduce(both));
  }

  #of(parts: readonly { elements: readonly AST.Element[]; before: boolean; behind: boolean }[]): Automaton {
    const fragments = new Fragments();
    const [start, end] = [fragments.place(), fragments.place()];
    for (const { elements, before, behind } of parts) {
      let at = fragments.place();
      start.joins.push(at);
      if (before) at.edges.push([ALL, at]);
      at = this.#sequence(fragments, elements, at);
      const last = fragments.place();
      at.joins.push(last);
      if (behind) last.edges.push([ALL, last]);
      last.joins.push(end);
    }
    return fragments.between(start, end);
  }

  #sequence(fragments: Fragments, elements: readonly AST.Element[], start: Place): Place {
    return elements.reduce((at, element) => this.#element(fragments, element, at), start);
  }

  /** @returns the node behind it */
  #element(fragments: Fragments, element: AST.Element, start: Place): Place {
    const end = fragments.place();
    switch (element.type) {
      case 'Character':
      case 'CharacterSet':
      case 'CharacterClass':
        // Once for an element, however often it's repeated.
        start.edges.push([valueIn(this.#sets, element, () => this.#characters(element)), end]);
        return end;
      case 'Group':
      case 'CapturingGroup':
        if (element.type === 'Group' && element.modifiers) throw refused(this.source, 'flags in a group are not done');
        for (const { elements } of element.alternatives) {
          const first = fragments.place();
          start.joins.push(first);
          this.#sequence(fragments, elements, first).joins.push(end);
        }
        return end;
      case 'Quantifier': {
        const { min, max, element: of } = element;
        let at = start;
        for (let i = 0; i < min; i++) at = this.#element(fragments, of, at);
        if (max === Infinity) {
          const loop = fragments.place();
          at.joins.push(loop);
          this.#element(fragments, of, loop).joins.push(loop);
          loop.joins.push(end);
          return end;
        }
        for (let i = min; i < max; i++) {
          at.joins.push(end);
          at = this.#element(fragments, of, at);
        }
        at.joins.push(end);
        return end;
      }
      case 'Assertion':
        throw refused(
          this.source,
          element.kind === 'start' || element.kind === 'end'
            ? '^ and $ are done at the ends of an alternative only'
            : `'${element.raw}': ${element.kind === 'word' ? 'word boundaries are' : `a ${element.kind} here is`} not done`,
        );
      case 'Backreference':
        throw refused(this.source, `'${element.raw}': references to groups are not done`);
      default:
        throw refused(this.source, `'${element.raw}' is not done`);
    }
  }

  #characters(element: AST.Character | AST.CharacterSet | AST.CharacterClass | AST.CharacterClassRange): CodePoints {
    switch (element.type) {
      case 'Character':
        return codePoints([[element.value, element.value]]);
      case 'CharacterClassRange':
        return codePoints([[element.min.value, element.max.value]]);
      case 'CharacterClass': {
        const parts = (element.elements as AST.CharacterClass['elements']).map((part) => {
          if (part.type === 'Character' || part.type === 'CharacterClassRange' || part.type === 'CharacterSet') {
            return this.#characters(part);
          }
          throw refused(this.source, `'${part.raw}' is not done`);
        });
        const all = parts.length > 0 ? union(...parts) : NONE;
        return element.negate ? complement(all) : all;
      }
      case 'CharacterSet': {
        if (element.kind === 'any') return complement(LINE_ENDS);
        if (element.kind === 'property') return charactersThat(element.raw);
        const set = { digit: DIGITS, word: WORD, space: SPACES }[element.kind];
        return element.negate ? complement(set) : set;
      }
    }
  }
}

const isEdge = (element: AST.Element | undefined, kind: 'start' | 'end'): boolean =>
  element?.type === 'Assertion' && element.kind === kind;

function hasAnchors({ alternatives }: AST.Group | AST.CapturingGroup): boolean {
  return alternatives.some(({ elements }) =>
    elements.some(
      (element) =>
        element.type === 'Assertion' ||
        ((element.type === 'Group' || element.type === 'CapturingGroup') && hasAnchors(element)),
    ),
  );
}

const DIGITS = codePoints([[0x30, 0x39]]);
const WORD = union(
  DIGITS,
  characters('_'),
  codePoints([
    [0x41, 0x5a],
    [0x61, 0x7a],
  ]),
);
const LINE_ENDS = characters('\n\r\u2028\u2029');
const SPACES = union(
  characters('\t\v\f \u00a0\ufeff\u1680\u202f\u205f\u3000'),
  LINE_ENDS,
  codePoints([[0x2000, 0x200a]]),
);

const found = new Map<string, CodePoints>();

/** Those of a \p{...}: all are tried, once. */
const charactersThat = (property: string): CodePoints =>
  valueIn(found, property, () => {
    const has = new RegExp(property, 'u');
    const ranges: [number, number][] = [];
    for (const [first, last] of ALL) {
      for (let code = first; code <= last; code++) {
        if (!has.test(String.fromCodePoint(code))) continue;
        const before = ranges.at(-1);
        if (before?.[1] === code - 1) before[1] = code;
        else ranges.push([code, code]);
      }
    }
    return codePoints(ranges);
  });

/** What was read last, and the steps that it took: a schema often says the same in many places. */
const read = new Kept<{ readonly texts: Automaton; readonly steps: number }>(64);

/** Texts with a match of a pattern anywhere; `whole`: that match it from end to end. */
export function textsWith(pattern: string, whole = false): Automaton {
  const key = `${whole} ${pattern}`;
  const known = read.get(key);
  if (known) {
    // So that what is refused depends on nothing before.
    spend(known.steps);
    return known.texts;
  }
  const before = stepsLeft();
  const texts = textsOf(pattern, whole);
  read.set(key, { texts, steps: before - stepsLeft() }, 1);
  return texts;
}
