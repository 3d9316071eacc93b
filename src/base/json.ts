import { formatError } from './errors.js';

/** Parses JSON text (a byte order mark is allowed); the error names the file. */
export function parseJson(text: string, file: string): unknown {
  try {
    return JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch (cause) {
    throw formatError(`${file}: not valid JSON (${(cause as Error).message})`, cause);
  }
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A value as it may appear in a message: JSON, shortened. */
export function show(value: unknown): string {
  // JSON has no NaN and no infinities: it would say null.
  const text = (typeof value === 'number' ? undefined : JSON.stringify(value)) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
