import { readFile } from 'node:fs/promises';
import { SplitkvError, usageError } from '../base/errors.js';

export const TOKENS_HINT = 'give ids with commas, e.g. --tokens 1,2,3, or @FILE.json';

/** The value of --tokens: `1,2,3`, or `@FILE.json` with one list of ids or a list of lists. @throws SplitkvError `usage`, `io` */
export async function readTokenLists(argument: string): Promise<readonly (readonly number[])[]> {
  if (!argument.startsWith('@')) {
    const parts = argument.split(',').map((part) => part.trim());
    return [parts.map((part) => tokenId(/^\d+$/.test(part) ? Number(part) : part, '--tokens'))];
  }
  const path = argument.slice(1);
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    const why =
      error instanceof SyntaxError ? `not JSON: ${error.message}` : `can't be read: ${(error as Error).message}`;
    throw new SplitkvError('io', `--tokens @${path}: ${why}`, { cause: error });
  }
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
