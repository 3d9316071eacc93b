import { didYouMean, type SplitkvError, usageError } from '../base/errors.js';
import { isObject, parsed, parseJson, show } from '../base/json.js';
import { defined } from '../base/options.js';
import type { GenerateOptions } from '../index.js';
import { type Options, readGiven, readGivenJson } from './options.js';

/** What `chat --turns` asks. */
export interface Turns {
  readonly system?: string;
  readonly turns: readonly string[];
  readonly options: Pick<GenerateOptions, 'maxTokens' | 'temperature' | 'seed'>;
}

const KEYS = ['system', 'turns', 'max_tokens', 'temperature', 'seed'];

/** @throws SplitkvError `io` for a file that can't be read, `format`, `usage` for what isn't turns */
export async function readTurns(path: string): Promise<Turns> {
  const given = await readGivenJson('turns', path);
  const wrong = (what: string): SplitkvError => usageError(`--turns ${path}: ${what}`);
  if (!isObject(given)) throw wrong('expected {"turns": [text, ...]}');
  for (const key of Object.keys(given)) {
    if (!KEYS.includes(key)) throw wrong(`unknown key '${key}'.${didYouMean(key, KEYS)}`);
  }
  const { system, turns, max_tokens: maxTokens, temperature, seed } = given;
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

/**
 * Prompts from a file: a JSON list, or JSON lines. Each is a text, a list of token ids, or an object with `prompt` or `tokens`.
 * @param most so many are taken, where given
 * @throws SplitkvError `io`, `format`; `usage` for an entry that is no prompt, and for fewer than asked for
 */
export async function readPrompts(path: string, most?: number): Promise<(string | readonly number[])[]> {
  const text = await readGiven('prompts', path);
  const entries = entriesOf(text, path).map((entry, index) => promptOf(entry, `${path}, entry ${index + 1}`));
  if (entries.length === 0) throw usageError(`--prompts ${path}: it holds no prompts`);
  if (most !== undefined && entries.length < most) {
    throw usageError(`--samples ${most}: ${path} holds ${entries.length} prompts; ask for at most that`);
  }
  return entries.slice(0, most);
}

function entriesOf(text: string, path: string): unknown[] {
  const list = text.trimStart().startsWith('[') ? (parsed(text) as unknown[] | undefined) : undefined;
  // One line of ids is a prompt, not a list of prompts.
  if (list) return list.every((id) => typeof id === 'number') ? [list] : list;
  const lines = text.split('\n').map((line, index) => ({ line, index }));
  return lines
    .filter(({ line }) => line.trim() !== '')
    .map(({ line, index }) => parseJson(line, `${path}, line ${index + 1}`));
}

function promptOf(entry: unknown, where: string): string | readonly number[] {
  const prompt = isObject(entry) ? (entry['prompt'] ?? entry['tokens']) : entry;
  if (typeof prompt === 'string' && prompt !== '') return prompt;
  const isIds = Array.isArray(prompt) && prompt.length > 0 && prompt.every((id) => Number.isSafeInteger(id) && id >= 0);
  if (isIds) return prompt as number[];
  throw usageError(`--prompts ${where}: ${show(entry)} is no prompt; expected a text, token ids, or {"prompt": ...}`);
}

export const mediaSpecs = {
  image: {
    value: 'FILE',
    multiple: true,
    help: "a PNG, JPEG, WebP or GIF, for the next of the model's own placeholders in the prompt, such as <image> (of token ids: of an image's rows); several times for several. The model is loaded with its encoder (--images)",
  },
  audio: {
    value: 'FILE',
    multiple: true,
    help: 'likewise a WAV file of up to 30 s, for the next placeholder such as <|audio|> (--sound)',
  },
} as const;

/** The files that --image and --audio name, as data: URLs; undefined without any. @throws SplitkvError `io` */
export async function readMedia(
  options: Options,
): Promise<{ readonly images?: string[]; readonly sounds?: string[] } | undefined> {
  const read = (name: 'image' | 'audio'): Promise<string[]> =>
    Promise.all(
      options.texts(name).map(async (path) => `data:${name}/*;base64,${await readGiven(name, path, '', 'base64')}`),
    );
  const [images, sounds] = [await read('image'), await read('audio')];
  if (images.length + sounds.length === 0) return undefined;
  return { ...(images.length > 0 && { images }), ...(sounds.length > 0 && { sounds }) };
}

export const TOKENS_HINT = 'give ids with commas, e.g. --tokens 1,2,3, or @FILE.json';

/** The value of --tokens: `1,2,3`, or `@FILE.json` with one list of ids or a list of lists. @throws SplitkvError `usage`, `io`, `format` */
export async function readTokenLists(argument: string): Promise<readonly (readonly number[])[]> {
  if (!argument.startsWith('@')) {
    const parts = argument.split(',').map((part) => part.trim());
    return [parts.map((part) => tokenId(/^\d+$/.test(part) ? Number(part) : part, '--tokens'))];
  }
  const path = argument.slice(1);
  const parsed = await readGivenJson('tokens', path, '@');
  if (!Array.isArray(parsed) || parsed.length === 0) {
    throw usageError(`--tokens @${path}: expected a list of token ids, or a list of such lists, not empty`);
  }
  const lists: unknown[] = parsed.every((item) => Array.isArray(item)) ? parsed : [parsed];
  return lists.map((list, index) => {
    if (!Array.isArray(list) || list.length === 0) throw usageError(`--tokens @${path}: list ${index} is empty`);
    return list.map((id) => tokenId(id, `--tokens @${path}: list ${index}`));
  });
}

function tokenId(id: unknown, where: string): number {
  if (typeof id === 'number' && Number.isSafeInteger(id) && id >= 0) return id;
  throw usageError(`${where}: ${JSON.stringify(id)} is no token id; expected non-negative integers`);
}
