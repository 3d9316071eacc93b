import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';

/** Karpathy's stories260K, converted, beside the checkout: the one trained model small enough for every run. */
const folder = fileURLToPath(new URL('../../../../../shared/real/stories260K/', import.meta.url));
const why = existsSync(`${folder}/hf/model.safetensors`) ? '' : ` (skipped: no ${folder})`;

/** What its author's program wrote, greedily: the text between the command and the end of the block. */
const greedyStory = (): string =>
  /-t 0\.0\n([\s\S]*?)\n```/.exec(readFileSync(`${folder}/stories260K.md`, 'utf8'))?.[1] ?? '';

/** Greedy from the beginning-of-sequence token. */
async function tell(where: string, options: LoadOptions = {}): Promise<{ text: string; tokens: readonly number[] }> {
  const adapter = (await testAdapters()).at(-1)!.name;
  const model = await load(`${folder}/${where}`, { adapter, weights: 'f32', ...options });
  try {
    const { text, tokens } = await model.generate([1], { maxTokens: 256, temperature: 0 }).result;
    return { text, tokens };
  } finally {
    await model.dispose();
  }
}

describe.skipIf(why !== '')(`a trained model tells its author's story${why}`, { timeout: 120_000 }, () => {
  test('from safetensors, to the letter', async () => {
    expect(greedyStory()).toHaveLength(565);
    expect((await tell('hf')).text.trimStart()).toBe(greedyStory());
  });

  test('from GGUF, to the letter', async () => {
    expect((await tell('stories260K.gguf')).text.trimStart()).toBe(greedyStory());
  });

  test('on two ranks, with the same tokens', async () => {
    const ranks = { ranks: 2, plan: 'tp', virtualRanks: true } as const;
    expect(await tell('hf', ranks)).toEqual(await tell('hf'));
  });
});
