import type { AnswerInput, Steps, Take } from './answer_input.js';

/** Passes a JSON value on as it comes. @returns whether it was whole */
export function* jsonValue(input: AnswerInput, take: Take): Steps<boolean> {
  let depth = 0;
  let quoted = false;
  let empty = true;
  for (;;) {
    const next = yield* input.peek(1);
    if (next === '') return false;
    if (quoted) {
      if (next === '\\') {
        if ((yield* input.peek(2)).length < 2) return false;
        take(input.take(2));
        continue;
      }
      take(input.take(1));
      quoted = next !== '"';
    } else if (next === '"' && (depth > 0 || empty)) {
      take(input.take(1));
      quoted = true;
    } else if ('{['.includes(next) && (depth > 0 || empty)) {
      take(input.take(1));
      depth++;
    } else if (depth > 0) {
      take(input.take(1));
      if ('}]'.includes(next)) depth--;
    } else {
      // A number or a word: up to what can't be of it.
      const word = yield* input.word(/[-+.\w]/);
      take(word);
      return word !== '';
    }
    empty = false;
    if (depth === 0 && !quoted) return true;
  }
}

/** The value of a JSON string; undefined where none comes. */
export function* jsonString(input: AnswerInput): Steps<string | undefined> {
  if ((yield* input.peek(1)) !== '"') return undefined;
  let raw = '';
  if (!(yield* jsonValue(input, (piece) => (raw += piece)))) return undefined;
  const value = parsed(raw);
  return typeof value === 'string' ? value : undefined;
}

/** A JSON text's value; undefined where it is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A word as JSON: a text where it is no JSON itself. */
export function jsonOfWord(word: string): string {
  const value = parsed(word);
  return JSON.stringify(value === undefined ? word : value);
}

const PYTHON: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null' };
/** As JSON has it, where it is a word of Python's. */
export const jsonWord = (word: string): string => PYTHON[word] ?? word;
