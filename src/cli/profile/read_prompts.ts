/**
 * Room: `splitkv profile`: samples from a file (here), and what each kv head keeps of them as a table and a heat map.
 * The measurement is in engine/measure/measure_profile.ts.
 */

import { readFile } from 'node:fs/promises';
import { SplitkvError, usageError } from '../../base/errors.js';
import { isObject, parseJson, show } from '../../base/json.js';

/**
 * Sample prompts from a file: a JSON list, or JSON lines. Each is a text, a list of token ids, or an object with `prompt` or `tokens`.
 * @param most so many are taken, where given
 * @throws SplitkvError `io`, `format`; `usage` for an entry that is no prompt, and for fewer than asked for
 */
export async function readPrompts(path: string, most?: number): Promise<(string | readonly number[])[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new SplitkvError('io', `--prompts ${path}: can't be read: ${(error as Error).message}`, { cause: error });
  }
  const entries = entriesOf(text, path).map((entry, index) => promptOf(entry, `${path}, entry ${index + 1}`));
  if (entries.length === 0) throw usageError(`--prompts ${path}: it holds no prompts`);
  if (most !== undefined && entries.length < most) {
    throw usageError(`--samples ${most}: ${path} holds ${entries.length} prompts; ask for at most that`);
  }
  return entries.slice(0, most);
}

function entriesOf(text: string, path: string): unknown[] {
  if (text.trimStart().startsWith('[') && isOneDocument(text)) {
    const list = parseJson(text, path) as unknown[];
    // One line of ids is a prompt, not a list of prompts.
    return list.every((id) => typeof id === 'number') ? [list] : list;
  }
  const lines = text.split('\n').map((line, index) => ({ line, index }));
  return lines
    .filter(({ line }) => line.trim() !== '')
    .map(({ line, index }) => parseJson(line, `${path}, line ${index + 1}`));
}

function isOneDocument(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function promptOf(entry: unknown, where: string): string | readonly number[] {
  const prompt = isObject(entry) ? (entry['prompt'] ?? entry['tokens']) : entry;
  if (typeof prompt === 'string' && prompt !== '') return prompt;
  const isIds = Array.isArray(prompt) && prompt.length > 0 && prompt.every((id) => Number.isSafeInteger(id) && id >= 0);
  if (isIds) return prompt as number[];
  throw usageError(`--prompts ${where}: ${show(entry)} is no prompt; expected a text, token ids, or {"prompt": ...}`);
}
