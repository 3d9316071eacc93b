import type * as z from 'zod/mini';
import { didYouMean, nearestName, usageError } from './errors.js';
import { parseJson, show } from './json.js';

/**
 * Checks the form of a file that people may have written.
 *
 * @param json JSON text, or what JSON.parse gave
 * @param name how messages call it: the file
 * @param keys the names that the schema knows: at its top, or at any path
 * @throws SplitkvError `usage` with the path of the first fault and what to write there; `format` for text that isn't JSON
 */
export function parseForm<T>(
  schema: z.ZodMiniType<T>,
  json: unknown,
  name: string,
  keys: readonly string[] | ((path: readonly PropertyKey[]) => readonly string[]),
): T {
  const value = typeof json === 'string' ? parseJson(json, name) : json;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  // A misspelt key is also a missing one; the name that is there says more.
  const unknown = issues.find(({ code }) => code === 'unrecognized_keys');
  if (unknown?.code === 'unrecognized_keys') {
    const [key = ''] = unknown.keys;
    const known = typeof keys === 'function' ? keys(unknown.path) : unknown.path.length > 0 ? [] : keys;
    const hint = known.length === 0 ? '' : didYouMean(key, known) || ` Its keys are ${known.join(', ')}.`;
    throw usageError(`${pathName(name, unknown.path)}: unknown key '${key}'.${hint}`);
  }
  const issue = issues[0]!;
  const found = valueAt(value, issue.path);
  if (found !== undefined) throw usageError(`${pathName(name, issue.path)} is ${show(found)}; write ${issue.message}`);
  const there = nearestName(String(issue.path.at(-1)), Object.keys(valueAt(value, issue.path.slice(0, -1)) ?? {}));
  const hint = there === undefined ? '' : ` There is '${there}': did you mean '${String(issue.path.at(-1))}'?`;
  throw usageError(`${pathName(name, issue.path)} is missing; write ${issue.message}.${hint}`);
}

/** ['layers', 0, 3] -> "profile.layers[0][3]". */
const pathName = (name: string, path: readonly PropertyKey[]): string =>
  path.reduce<string>((text, key) => text + (typeof key === 'number' ? `[${key}]` : `.${String(key)}`), name);

const valueAt = (value: unknown, path: readonly PropertyKey[]): object | undefined =>
  path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null | undefined)?.[key], value) as
    | object
    | undefined;
