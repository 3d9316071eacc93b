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

  // SPLITKV_PRINT=1 tells how many.
  test.each(['f16', 'q8', 'q4'] as const)("%s: with precision 'fast' it foresees as much of it", async (weights) => {
    const { tokens } = await tell('hf');
    const right = async (precision: 'exact' | 'fast'): Promise<number> => {
      const adapter = (await testAdapters()).at(-1)!.name;
      const how = { adapter, weights, precision, variants: 'hardware' } as const;
      const model = await load(`${folder}/hf`, how);
      const { rows } = await model.logits([1, ...tokens.slice(0, -1)], { all: true });
      expect(model.stats().precision).toBe(precision);
      await model.dispose();
      const foreseen = rows.filter((row, i) => row.indexOf(row.reduce((most, of) => Math.max(most, of))) === tokens[i]);
      return foreseen.length;
    };
    const [exact, fast] = [await right('exact'), await right('fast')];
    if (process.env['SPLITKV_PRINT'])
      console.log(`stories260K | ${weights} | ${exact}, fast ${fast} of ${tokens.length}`);
    expect(fast).toBeGreaterThanOrEqual(exact - 5);
  });
});
