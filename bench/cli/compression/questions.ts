import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SplitkvError, usageError } from '../../../src/base/errors.js';
import { parseJson } from '../../../src/base/json.js';
import { embeddedModel } from '../bench_options.js';
import type { Question } from './compression_suite.js';

/**
 * Questions from JSON lines, of the given lengths and at most `most` of each.
 * @throws SplitkvError `io`, `format`; `usage` for a line that is none and for lengths without questions
 */
export async function readQuestions(
  path = join(embeddedModel(), '..', 'eval.jsonl'),
  { contexts, most = Infinity }: { readonly contexts: readonly number[]; readonly most?: number | undefined },
): Promise<Question[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new SplitkvError('io', `--questions ${path}: can't be read: ${(error as Error).message}`, { cause: error });
  }
  const all = text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line, index) => question(parseJson(line, `${path}, line ${index + 1}`), `${path}, line ${index + 1}`));
  return contexts.flatMap((context) => {
    const found = all.filter((candidate) => candidate.context === context).slice(0, most);
    if (found.length > 0) return found;
    const known = [...new Set(all.map((candidate) => candidate.context))].join(', ');
    throw usageError(`--prompt-tokens ${context}: ${path} has no such questions; it has some of ${known} tokens`);
  });
}

function question(value: unknown, where: string): Question {
  const { context, prompt, answer } = (value ?? {}) as Partial<Record<keyof Question, unknown>>;
  if (typeof context === 'number' && typeof prompt === 'string' && typeof answer === 'string') {
    return { context, prompt, answer };
  }
  throw usageError(`${where}: expected {"context": tokens, "prompt": text, "answer": text}`);
}
