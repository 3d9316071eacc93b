import { defined } from '../base/options.js';
import { readFile } from 'node:fs/promises';
import { didYouMean, SplitkvError, usageError } from '../base/errors.js';
import type { GenerateOptions } from '../index.js';

/** What `chat --turns` asks. */
export interface Turns {
  readonly system?: string;
  readonly turns: readonly string[];
  readonly options: Pick<GenerateOptions, 'maxTokens' | 'temperature' | 'seed'>;
}

const KEYS = ['system', 'turns', 'max_tokens', 'temperature', 'seed'];

/** @throws SplitkvError `io` for a file that can't be read, `usage` for what isn't turns */
export async function readTurns(path: string): Promise<Turns> {
  const given = await readJson('turns', path);
  const wrong = (what: string): SplitkvError => usageError(`--turns ${path}: ${what}`);
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw wrong('expected {"turns": [text, ...]}');
  }
  for (const key of Object.keys(given)) {
    if (!KEYS.includes(key)) throw wrong(`unknown key '${key}'.${didYouMean(key, KEYS)}`);
  }
  const { system, turns, max_tokens: maxTokens, temperature, seed } = given as Record<string, unknown>;
  if (!Array.isArray(turns) || turns.length === 0 || !turns.every((turn) => typeof turn === 'string' && turn !== '')) {
    throw wrong('"turns": expected a list of texts');
  }
  if (system !== undefined && typeof system !== 'string') throw wrong('"system": expected a text');
  if (maxTokens !== undefined && !(Number.isSafeInteger(maxTokens) && (maxTokens as number) >= 1)) {
    throw wrong('"max_tokens": expected a whole number of at least 1');
  }
  for (const [name, value] of Object.entries({ temperature, seed })) {
    if (value !== undefined && typeof value !== 'number') throw wrong(`"${name}": expected a number`);
  }
  return {
    ...(system !== undefined && { system }),
    turns: turns as string[],
    options: defined({ maxTokens, temperature, seed }) as Turns['options'],
  };
}

/** A list of prompts, each a text or token ids. @throws as `readTurns` */
export async function readPrompts(path: string): Promise<(string | readonly number[])[]> {
  const given = await readJson('prompts', path);
  const isPrompt = (prompt: unknown): boolean =>
    (typeof prompt === 'string' && prompt !== '') ||
    (Array.isArray(prompt) && prompt.length > 0 && prompt.every((id) => Number.isSafeInteger(id) && id >= 0));
  if (!Array.isArray(given) || given.length === 0 || !given.every(isPrompt)) {
    throw usageError(`--prompts ${path}: expected a list of prompts, each a text or a list of token ids`);
  }
  return given as (string | readonly number[])[];
}

async function readJson(option: string, path: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new SplitkvError('io', `--${option} ${path}: can't be read (${(error as Error).message})`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw usageError(`--${option} ${path}: isn't JSON (${(error as Error).message})`);
  }
}
