import { formatError, tried } from './errors.js';

/** Parses JSON text (a byte order mark is allowed); the error names the file. */
export function parseJson(text: string, file: string, parse: (text: string) => unknown = JSON.parse): unknown {
  try {
    return parse(text.replace(/^\uFEFF/, ''));
  } catch (cause) {
    throw formatError(`${file}: not valid JSON (${(cause as Error).message})`, cause);
  }
}

/** A JSON text's value; undefined where it is none. */
export const parsed = (text: string): unknown => tried(() => JSON.parse(text) as unknown);

const STRINGS_AND_WORDS = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"?|-?\bInfinity\b|\bNaN\b(?!\s*:)/g;

/**
 * JSON, with the numbers beside it that Python's `json` writes and reads: Infinity, -Infinity and NaN, bare or as transformers 5 has them
 * (`{"__float__": "Infinity"}`).
 * @throws what JSON.parse throws
 */
export function parsePythonJson(text: string): unknown {
  try {
    return JSON.parse(text, text.includes('"__float__"') ? namedFloat : undefined);
  } catch (error) {
    let notANumber = '';
    while (text.includes(notANumber)) notANumber += '\uFDD0NaN';
    let found = false;
    const json = text.replace(STRINGS_AND_WORDS, (part) => {
      if (part.startsWith('"')) return part;
      if (part !== 'NaN') return part.replace('Infinity', '1e999');
      found = true;
      return `"${notANumber}"`;
    });
    try {
      return JSON.parse(json, found ? (_, value: unknown) => (value === notANumber ? Number.NaN : value) : undefined);
    } catch {
      throw error;
    }
  }
}

const namedFloat = (_: string, value: unknown): unknown =>
  isObject(value) && typeof value.__float__ === 'string' ? Number(value.__float__) : value;

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** What JSON calls the type of a value. */
export const typeOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;

/** The part of a value that a pointer such as `#/$defs/name` leads to; undefined where there is none. */
export const partAt = (root: unknown, pointer: string): unknown =>
  pointer
    .split('/')
    .slice(1)
    .map((part) => (tried(() => decodeURIComponent(part)) ?? part).replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>(
      (at, key) =>
        (isObject(at) || Array.isArray(at)) && Object.hasOwn(at, key)
          ? (at as Record<string, unknown>)[key]
          : undefined,
      root,
    );

/** JSON of what was parsed; undefined for what JSON doesn't have, and for lists in lists too many for the writer, which recurses. */
export function jsonText(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** A value as it may appear in a message: JSON, shortened. */
export function show(value: unknown): string {
  if (typeof value === 'number') return String(value); // JSON has no NaN and no infinities: it would say null
  const text = jsonText(value) ?? (typeof value === 'object' ? 'nested too deeply' : String(value as undefined));
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/** A name or text from outside as it may appear in a message: its first 100 characters. */
export const shortened = (text: string): string => (text.length > 100 ? `${text.slice(0, 97)}...` : text);
