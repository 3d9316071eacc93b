import { codePoints, complement } from './code_points.js';
import { oneOf, printed, text } from './rules.js';

/** What a backslash and a letter stand for in XGrammar's notation; other letters for themselves. */
const LETTERS: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  b: '\b',
  f: '\f',
  v: '\v',
  a: '\x07',
  e: '\x1b',
  0: '\0',
};
const CODE = /\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|([^\\])/gsu;

interface Letter {
  readonly code: number;
  /** Stands for itself, whatever it is. */
  readonly escaped: boolean;
}

const lettersOf = (of: string): Letter[] =>
  [...of.matchAll(CODE)].map(([, x, u, long, escape, plain]) => {
    const hex = x ?? u ?? long;
    if (hex !== undefined) return { code: Number.parseInt(hex, 16), escaped: true };
    const letter = escape === undefined ? plain! : (LETTERS[escape] ?? escape);
    return { code: letter.codePointAt(0)!, escaped: escape !== undefined };
  });

/** A grammar, as XGrammar writes one that it has read, over symbols (symbols.ts) instead of characters. */
export function overSymbols(grammar: string): string {
  return grammar.replace(
    /"((?:\\.|[^"\\])*)"|\[(\^?)((?:\\.|[^\]\\])*)\]/gsu,
    (_all, literal: string | undefined, not: string, set: string) => {
      if (literal !== undefined)
        return printed(
          text(
            lettersOf(literal)
              .map(({ code }) => String.fromCodePoint(code))
              .join(''),
          ),
        );
      const letters = lettersOf(set);
      const ranges: [number, number][] = [];
      for (let at = 0; at < letters.length; at++) {
        const [first, dash, last] = letters.slice(at, at + 3);
        const isRange = dash !== undefined && last !== undefined && dash.code === 0x2d && !dash.escaped;
        ranges.push([first!.code, isRange ? last.code : first!.code]);
        if (isRange) at += 2;
      }
      const characters = codePoints(ranges);
      return `(${printed(oneOf(not === '^' ? complement(characters) : characters))})`;
    },
  );
}
